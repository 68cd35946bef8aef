"""`msllm data`: corpora to datasets, and a look at what is in them."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from msllm.commands.options import AsJson, print_json

app = typer.Typer(help="Train a tokenizer, convert a corpus, look at a dataset and check it.", no_args_is_help=True)

Inputs = Annotated[
    list[str],
    typer.Option(
        "--input",
        "-i",
        metavar="PATH",
        help="File, folder (with all below it) or quoted pattern like 'corpus/**/*.jsonl'; repeat it for more. "
        "Read are .txt .md .jsonl .json, also with .gz or .zst behind it, and .parquet.",
    ),
]
TextKey = Annotated[str, typer.Option(help="Key (JSON) or column (Parquet) that holds the text.")]
Dataset = Annotated[Path, typer.Argument(metavar="DIR", help="Folder that `msllm data convert` wrote.")]


class OnError(str, Enum):
    """What to do about documents that cannot be used."""

    fail = "fail"
    skip = "skip"


class Backend(str, Enum):
    """Which library tokenizes."""

    auto = "auto"
    gigatoken = "gigatoken"
    kitoken = "kitoken"
    reference = "reference"


class Tail(str, Enum):
    """What to do with tokens that fill no row."""

    pad = "pad"
    drop = "drop"


@app.command()
def convert(
    inputs: Inputs,
    tokenizer: Annotated[
        Path, typer.Option(metavar="FILE", help="SentencePiece .model, Hugging Face tokenizer.json, or its folder.")
    ],
    seq_length: Annotated[int, typer.Option(help="Tokens of a row that are predicted; a row holds one more.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder that becomes the dataset.")],
    shards: Annotated[
        int | None,
        typer.Option(help="MindRecord files; left out: one per 16 MiB of input up to 64, then one per 512 MiB."),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes; left out: one per core. The output does not depend on it.")
    ] = None,
    text_key: TextKey = "text",
    eod_token: Annotated[
        str | None, typer.Option(metavar="TOKEN", help="Token put after each document; left out: the tokenizer's own.")
    ] = None,
    on_error: Annotated[
        OnError, typer.Option(help="Documents that cannot be used: stop and name them, or leave them out and count.")
    ] = OnError.fail,
    tail: Annotated[
        Tail,
        typer.Option(help="Tokens at a shard's end that fill no row: fill it with EOD, or leave them out and count."),
    ] = Tail.pad,
    backend: Annotated[
        Backend,
        typer.Option(
            "--tokenizer-backend",
            help="Library that tokenizes: the fastest that gives the same tokens as the tokenizer's own on documents of "
            "this input, or one by name; reference is the tokenizer's own. The output does not depend on it.",
        ),
    ] = Backend.auto,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished dataset that differs.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Throw away an unfinished conversion instead of going on with it.")
    ] = False,
    num_parts: Annotated[
        int | None,
        typer.Option(help="Divide the conversion among so many jobs; `msllm data merge` joins what they make."),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Let the workers of a Dask scheduler make the shards, as tcp://host:8786."
        ),
    ] = None,
    part: Annotated[int | None, typer.Option(help="The part that this job makes, from 1.")] = None,
    as_json: AsJson = False,
) -> None:
    """Convert text files to a dataset of MindRecord files; run it again to go on after an interruption.

    Example: msllm data convert -i corpus/ --tokenizer tokenizer.model --seq-length 4096 -o datasets/corpus
    """
    from data_tools import report
    from data_tools.convert import convert as run
    from data_tools.convert import convert_part
    from data_tools.plan import ConvertRequest

    request = ConvertRequest(
        inputs=inputs,
        tokenizer=tokenizer,
        seq_length=seq_length,
        output=output,
        shards=shards,
        workers=workers,
        text_key=text_key,
        eod_token=eod_token,
        on_error=on_error.value,
        tail=tail.value,
        backend=backend.value,
        overwrite=overwrite,
        restart=restart,
        num_parts=num_parts,
        part=part,
        dask=dask,
    )
    if part is not None:
        partial = convert_part(request)
        print_json(partial.to_dict()) if as_json else report.show_part(partial)
        return
    summary = run(request)
    if as_json:
        print_json(summary.to_dict())
    else:
        report.show_conversion(summary)


@app.command()
def merge(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder that becomes the dataset.")],
    parts: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[PART]...", help="Folders of the parts; left out: DIR.part-K-of-N beside the output."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished dataset that differs.")] = False,
    as_json: AsJson = False,
) -> None:
    """Make one dataset of the parts of a conversion (--num-parts, --part): the bytes that one process gives.

    Example: msllm data merge -o datasets/corpus
    """
    from data_tools import report
    from data_tools.parts import merge as run

    summary = run(output, parts or [], overwrite)
    if as_json:
        print_json(summary.to_dict())
    else:
        report.show_merge(summary)


@app.command("train-tokenizer")
def train_tokenizer(
    inputs: Inputs,
    vocab_size: Annotated[int, typer.Option(help="Tokens, with 3 control tokens and 256 bytes among them.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The .model file to write.")],
    text_key: TextKey = "text",
    sample_mb: Annotated[
        int, typer.Option(help="Text to learn from, in 10^6 characters, spread over the input where that is larger.")
    ] = 200,
    character_coverage: Annotated[
        float, typer.Option(help="Share of the text whose characters become tokens; rarer ones are written in bytes.")
    ] = 0.9995,
    on_error: Annotated[
        OnError, typer.Option(help="Documents that cannot be used: stop and name them, or leave them out and count.")
    ] = OnError.fail,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train a SentencePiece BPE tokenizer of Llama's kind; the same input gives the same file.

    Example: msllm data train-tokenizer -i corpus/ --vocab-size 32000 -o tokenizer.model
    """
    from dataclasses import asdict

    from data_tools import report
    from data_tools.train_tokenizer import TrainRequest
    from data_tools.train_tokenizer import train_tokenizer as run

    summary = run(
        TrainRequest(
            inputs=inputs,
            vocab_size=vocab_size,
            output=output,
            text_key=text_key,
            sample_mb=sample_mb,
            character_coverage=character_coverage,
            on_error=on_error.value,
            overwrite=overwrite,
        )
    )
    if as_json:
        print_json({**asdict(summary), "output": str(summary.output), "seconds": round(summary.seconds, 3)})
    else:
        report.show_training(summary)


@app.command()
def inspect(
    directory: Dataset,
    rows: Annotated[int, typer.Option(help="Rows to decode.")] = 3,
    start: Annotated[int, typer.Option(help="First of them.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Show what a dataset holds: counts, decoded rows, frequent tokens.

    Example: msllm data inspect datasets/corpus --rows 5 --start 1000
    """
    from data_tools import report
    from data_tools.inspect import inspect as run

    inspection = run(directory, rows, start)
    if as_json:
        print_json(inspection.to_dict())
    else:
        report.show_inspection(inspection)


@app.command()
def verify(
    directory: Dataset,
    deep: Annotated[bool, typer.Option("--deep", help="Also decode every row and check its length and ids.")] = False,
    as_json: AsJson = False,
) -> None:
    """Check a dataset against its manifest: exit code 1 where a file is cut, changed, missing, doubled or stale.

    Example: msllm data verify datasets/corpus --deep
    """
    from data_tools import report
    from data_tools.verify import verify_with_progress

    found = verify_with_progress(directory, deep)
    if as_json:
        print_json(found.to_dict())
    else:
        report.show_verification(found)
    if found.damages:
        raise typer.Exit(1)
