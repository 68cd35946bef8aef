"""`msllm weights`: weights from and to Hugging Face's form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msllm.commands.options import AsJson, print_json
from msllm.commands.trained import Checkpoint, Trained, find_trained, load_tokenizer_of, load_weights
from msllm.errors import InputError, Problem

if TYPE_CHECKING:
    import numpy as np

    from msllm.config.sections import ModelConfig

app = typer.Typer(help="Check Hugging Face weights and write ours in that form.", no_args_is_help=True)

FREE = ("initializer_range", "max_position_embeddings")
"""Fields of config.json that a run may set otherwise than the weights' origin; no shape depends on them."""


class Dtype(str, Enum):
    """Dtypes of written weights."""

    float32 = "float32"
    float16 = "float16"
    bfloat16 = "bfloat16"


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="Hugging Face folder: config.json and safetensors.")],
    as_json: AsJson = False,
) -> None:
    """Read a Hugging Face folder as training would, and print the `model:` section that fits it.

    Every weight is read and every fault listed: missing, unexpected, cut, of a wrong shape, NaN.

    Example: msllm weights check downloads/Llama-2-7b-hf
    """
    from msllm.config.yaml_text import dump_yaml

    config, weights, notes = read_pretrained(folder, quiet=as_json)
    count = sum(array.size for array in weights.values())
    section = config.model_dump(mode="json")
    if as_json:
        print_json({"model": section, "parameters": count, "tensors": len(weights), "notes": notes})
        return
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"{folder}: {len(weights)} weights, {count:,} parameters, all there", err=True)
    typer.echo(dump_yaml({"model": section}), nl=False)


def read_pretrained(
    folder: str | Path, expected: ModelConfig | None = None, quiet: bool = False
) -> tuple[ModelConfig, dict[str, np.ndarray], list[str]]:
    """(model section, our name -> float32 array, what was left out) of a Hugging Face folder.

    InputError lists every fault; with `expected`, also every field in which that section describes another network.
    """
    from msllm.checkpoint.hf import CONFIG, check_tensors, open_folder, read_weights
    from msllm.registry import config_from_hf, config_to_hf, weight_map

    opened = open_folder(folder)
    config, left_out = config_from_hf(opened.config, opened.path / CONFIG)
    if expected is not None:
        wanted, found = config_to_hf(expected), config_to_hf(config)
        differing = [key for key in wanted if key not in FREE and wanted[key] != found.get(key)]
        if differing:
            raise InputError(
                [
                    Problem(
                        f"{key} is {found.get(key)!r}, the run's model section says {wanted[key]!r}",
                        opened.path / CONFIG,
                    )
                    for key in differing
                ]
            )
    names = weight_map(config)
    notes = [f"{CONFIG}: {key} has no counterpart here and is not used" for key in left_out]
    notes += check_tensors(opened, names)
    weights = {}
    total = sum(math.prod(shape) for shape in names.shapes().values())
    with progress_bar("reading weights", 4 * total, quiet) as advance:
        for name, array in read_weights(opened, names):
            weights[name] = array
            advance(array.nbytes)
    return config, weights, notes


@app.command()
def export(
    checkpoint: Checkpoint,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder to write; must not exist.")],
    dtype: Annotated[Dtype, typer.Option(help="Dtype of the files; float32 keeps every bit.")] = Dtype.float32,
    max_shard_size: Annotated[str, typer.Option(metavar="SIZE", help="Largest file, as 500MB or 5GB.")] = "5GB",
    tokenizer: Annotated[Path | None, typer.Option(help="Tokenizer, where the run's folder holds none.")] = None,
    bos_token_id: Annotated[int | None, typer.Option(help="Id of the token that begins a text, if any.")] = None,
    eos_token_id: Annotated[
        int | None, typer.Option(help="Id of the token that ends a text; left out: the data's end of document.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint's weights and tokenizer as a folder that transformers' from_pretrained reads.

    Example: msllm weights export --checkpoint runs/a --output hf/a --dtype bfloat16
    """
    from msllm.checkpoint.hf import export_folder
    from msllm.registry import config_to_hf, weight_map

    limit = parse_size(max_shard_size)
    trained = find_trained(checkpoint)
    files = _tokenizer_files(trained, tokenizer)
    weights = load_weights(trained)
    model = trained.config.model
    if eos_token_id is None:
        eos_token_id = trained.eod_id
    content = config_to_hf(model) | {"bos_token_id": bos_token_id, "eos_token_id": eos_token_id}
    width = 4 if dtype is Dtype.float32 else 2
    with progress_bar("exporting", width * sum(array.size for array in weights.values()), as_json) as advance:
        export_folder(output, content, weight_map(model), weights, dtype.value, limit, advance, files)
    summary: dict[str, Any] = {
        "checkpoint": str(trained.path),
        "output": str(output),
        "dtype": dtype.value,
        "files": sorted(file.name for file in output.iterdir()),
        "bytes": sum(file.stat().st_size for file in output.iterdir()),
    }
    if as_json:
        print_json(summary)
    else:
        typer.echo(f"wrote {output}: {len(summary['files'])} files, {summary['bytes']:,} bytes, {dtype.value}")


def _tokenizer_files(trained: Trained, given: Path | None) -> dict[str, bytes]:
    """The tokenizer in Hugging Face's form; nothing, and a note, where the run's folder holds none."""
    from msllm.data.hf_tokenizer import hf_files

    if given is None and trained.tokenizer_file is None:
        typer.echo("note: the run's folder holds no tokenizer, so none is written; give one with --tokenizer", err=True)
        return {}
    return hf_files(load_tokenizer_of(trained, given), trained.config.model.max_position_embeddings)


@contextmanager
def progress_bar(what: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Bytes, rate and time left on a terminal's stderr; yields what to call with each number of bytes done."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=quiet or not console.is_terminal, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda nbytes: progress.advance(task, nbytes)


def parse_size(text: str) -> int:
    """Bytes of `500MB`, `5GB`, `1000`; powers of ten, as Hugging Face counts. InputError for anything else."""
    number, unit = text.strip().upper(), 1
    for suffix, factor in (("KB", 10**3), ("MB", 10**6), ("GB", 10**9)):
        if number.endswith(suffix):
            number, unit = number.removesuffix(suffix).strip(), factor
    if not number.isdecimal() or int(number) == 0:
        raise InputError(
            f"--max-shard-size ({text}) must be a whole number with KB, MB, GB or nothing behind it, as 5GB"
        )
    return int(number) * unit
