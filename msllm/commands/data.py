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
        Tail, typer.Option(help="Tokens at a shard's end that fill no row: fill it with EOD, or leave them out and count.")
    ] = Tail.pad,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a finished dataset that differs.")] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Throw away an unfinished conversion instead of going on with it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Convert text files to a dataset of MindRecord files; run it again to go on after an interruption.

    Example: msllm data convert -i corpus/ --tokenizer tokenizer.model --seq-length 4096 -o datasets/corpus
    """
    from data_tools import report
    from data_tools.convert import convert as run
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
        overwrite=overwrite,
        restart=restart,
    )
    summary = run(request)
    if as_json:
        print_json(summary.to_dict())
    else:
        report.show_conversion(summary)
