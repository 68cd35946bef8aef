"""`msllm check`: whether a strategy is legal and what it costs, without MindSpore."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from msllm.commands.options import AsJson, ConfigFiles, Overrides, ParallelFile, print_json
from msllm.errors import InputError, Problem

if TYPE_CHECKING:
    from msllm.config.load import Reading
    from msllm.config.sections import RunConfig
    from msllm.hardware.cluster import Cluster
    from msllm.planner.verdict import Verdict

Devices = Annotated[
    int | None,
    typer.Option(
        "--devices", "-n", min=1, help="Devices of the job; left out: all of --cluster, or as many as it needs."
    ),
]
ClusterFile = Annotated[
    Path | None,
    typer.Option("--cluster", metavar="FILE", help="YAML of the cluster, as in clusters/; left out: usual servers."),
]


def check(
    config: ConfigFiles,
    parallel: ParallelFile = None,
    devices: Devices = None,
    cluster: ClusterFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a strategy is legal, all that is wrong with it, and what it amounts to. Needs no device.

    Example: msllm check -c models/llama/configs/llama2_7b.yaml -p parallel_configs/llama2_7b_8p_dp2_mp4.yaml --devices 8

    Exit code 0 with the figures of the strategy and warnings, 2 with every violation.
    """
    reading, given_cluster, problems = read_strategy(config, parallel, overrides or [], devices, cluster)
    if problems:
        if not as_json:
            raise InputError(problems)
        print_json({"legal": False, "violations": [problem.to_dict() for problem in problems]})
        raise typer.Exit(InputError.exit_code)

    from msllm.config.sections import RunConfig
    from msllm.planner.verdict import verdict

    run = RunConfig(**reading.sections)
    found = verdict(run, given_cluster or cluster_of(run))
    if as_json:
        print_json({"legal": True, "violations": [], "warnings": found.warnings, **found.figures})
    else:
        _print(found)


def read_strategy(
    config: list[Path], parallel: Path | None, overrides: list[str], devices: int | None, cluster: Path | None
) -> tuple[Reading, Cluster | None, list[Problem]]:
    """The configuration, the cluster of the file where one is given, and every problem of and between them."""
    from msllm.config.checks import wrong_device_number
    from msllm.config.cluster import cluster_problems, load_cluster
    from msllm.config.load import read_run_config
    from msllm.registry import MODEL_CONFIGS

    reading = read_run_config(config, parallel, overrides, MODEL_CONFIGS)
    problems, loaded_cluster = list(reading.problems), None
    if cluster is not None:
        try:
            loaded_cluster = load_cluster(cluster)
        except InputError as error:
            problems += error.problems
        else:
            problems += cluster_problems(reading.sections, reading.origins, loaded_cluster, devices)
            devices = devices or loaded_cluster.cluster.devices
    if devices is not None and "parallel_config" in reading.sections:
        problems += wrong_device_number(reading.sections["parallel_config"], reading.origins, devices)
    return reading, loaded_cluster.cluster if loaded_cluster else None, problems


def cluster_of(run: RunConfig) -> Cluster:
    """As many usual servers of the run's chip as its strategy needs."""
    from msllm.hardware.cluster import usual_cluster
    from msllm.hardware.servers import SERVERS, USUAL_CHIP

    chip = run.training.chip
    return usual_cluster(chip if chip in SERVERS else USUAL_CHIP, run.parallel_config.device_num)


def _print(found: Verdict) -> None:
    width = max(len(name) for name, _ in found.rows)
    for name, value in found.rows:
        typer.echo(f"{name:<{width}}  {value}")
    for warning in found.warnings:
        typer.secho("warning: ", fg="yellow", bold=True, nl=False)
        typer.echo(warning)
    typer.secho("legal: no rule is broken", fg="green")
