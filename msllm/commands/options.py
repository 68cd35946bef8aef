"""Options that several commands share, and the way from them to a configuration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from msllm.config.origin import LoadedConfig

ConfigFiles = Annotated[
    list[Path],
    typer.Option(
        "--config",
        "-c",
        metavar="FILE",
        help="YAML with sections model, data, optimizer, lr_schedule, training, checkpoint, parallel_config, "
        "recompute_config. "
        "Repeat it to spread them over several files; a key stands in one of them.",
    ),
]
ParallelFile = Annotated[
    Path | None,
    typer.Option(
        "--parallel",
        "-p",
        metavar="FILE",
        help="YAML of a strategy: parallel_config:, recompute_config:, as in parallel_configs/.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set", "-s", metavar="SECTION.KEY=VALUE", help="Override one value; repeat it for more. The value is YAML."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document to stdout and nothing else.")]


def load_from_options(
    config: list[Path], parallel: Path | None = None, overrides: list[str] | None = None
) -> LoadedConfig:
    """The configuration that `--config`, `--parallel` and `--set` describe; InputError with all its faults."""
    from msllm.config.load import load_run_config
    from msllm.registry import MODEL_CONFIGS

    return load_run_config(config, parallel, overrides or [], MODEL_CONFIGS)


def print_json(value: Any) -> None:
    """One JSON document on stdout."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
