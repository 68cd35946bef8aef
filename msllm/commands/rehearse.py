"""`msllm rehearse`: what a strategy will do on Ascend, found out without an NPU."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msllm.commands.check import ClusterFile, Devices, cluster_of, read_strategy
from msllm.commands.options import AsJson, ConfigFiles, Overrides, ParallelFile, print_json
from msllm.errors import InputError, RunError

if TYPE_CHECKING:
    from msllm.config.origin import LoadedConfig
    from msllm.hardware.cluster import Cluster
    from msllm.rehearsal.proof import Proof

app = typer.Typer(
    name="rehearse",
    help="Compile, measure and prove a parallel strategy without an NPU, with MindSpore's own Ascend compiler.",
    no_args_is_help=True,
)

Ranks = Annotated[
    str, typer.Option("--ranks", metavar="auto|all|0,7", help="auto: first and last rank of each pipeline stage.")
]
Jobs = Annotated[
    int,
    typer.Option(
        "--jobs", "-j", min=1, help="Ranks that are compiled at once, each on one core and in its own memory."
    ),
]
Keep = Annotated[
    Path | None,
    typer.Option("--keep", metavar="DIR", help="Folder for the logs and graphs, which else go if all is well."),
]
Steps = Annotated[int, typer.Option("--steps", min=1, help="Training steps that are compared.")]
Shrink = Annotated[
    str,
    typer.Option("--shrink", metavar="auto|off", help="auto: make the model small, keeping what the strategy divides."),
]


@app.command("compile")
def compile_(
    config: ConfigFiles,
    parallel: ParallelFile = None,
    devices: Devices = None,
    cluster: ClusterFile = None,
    ranks: Ranks = "auto",
    jobs: Jobs = 1,
    keep: Keep = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Compile the real training step for simulated ranks of any cluster size; report slices and collectives.

    Example: msllm rehearse compile -c models/llama/configs/llama2_7b.yaml -p parallel_configs/llama2_7b_8p_dp2_mp4.yaml
    """
    _compile(config, parallel, devices, cluster, ranks, jobs, keep, overrides, as_json, memory=False)


@app.command("memory")
def memory(
    config: ConfigFiles,
    parallel: ParallelFile = None,
    devices: Devices = None,
    cluster: ClusterFile = None,
    ranks: Ranks = "auto",
    jobs: Jobs = 1,
    keep: Keep = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Measure the device memory of each rank with MindSpore's own memory planner, against the chip's. Exit code 1: too much.

    Example: msllm rehearse memory -c models/llama/configs/llama2_7b.yaml -p parallel_configs/llama2_7b_8p_dp2_mp4.yaml
    """
    reports = _compile(config, parallel, devices, cluster, ranks, jobs, keep, overrides, as_json, memory=True)
    over = [report["rank"] for report in reports if not report["memory"]["fits"]]
    if over:
        raise RunError(
            f"rank {', '.join(map(str, over))}: more memory than the chip has; raise model_parallel or pipeline_stage, set "
            "recompute, enable_parallel_optimizer or use_seq_parallel, or take smaller micro batches"
        )


@app.command("run")
def run(
    config: ConfigFiles,
    parallel: ParallelFile = None,
    steps: Steps = 3,
    shrink: Shrink = "auto",
    tolerance: Annotated[float, typer.Option("--tolerance", help="Largest relative error of a tensor.")] = 1e-4,
    jobs: Jobs = 2,
    keep: Keep = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Prove that the sharded graph computes what one device computes, on CPU processes. Exit code 1: it does not.

    The step is compiled for every simulated rank, its graphs run on as many CPU processes, and losses, gradients (Adam's first
    moments) and weights are compared tensor by tensor. In float32, with elementary operations in the place of fused kernels.

    Example: msllm rehearse run -c models/llama/configs/llama_tiny.yaml -p parallel_configs/tiny_dp2_mp2_pp2.yaml
    """
    from msllm.config.origin import LoadedConfig
    from msllm.rehearsal.proof import MOST_PROCESSES, prove
    from msllm.rehearsal.shrink import changes, executable
    from msllm.rehearsal.shrink import shrink as make_small

    if shrink not in ("auto", "off"):
        raise InputError(f"--shrink ({shrink}) must be auto or off")
    loaded, _ = _load(config, parallel, None, None, overrides)
    given = loaded.config
    small = executable(make_small(given) if shrink == "auto" else given)
    size = small.parallel_config.device_num
    if not 1 < size <= MOST_PROCESSES:
        raise InputError(
            f"the strategy needs {size} devices, and a numerical rehearsal runs on 2 to {MOST_PROCESSES} processes; lower "
            "data_parallel, the axis of which two are as good as a thousand, or rehearse compile"
        )
    if small.parallel_config.pp_interleave_num > 1:
        raise InputError(
            f"pp_interleave_num ({small.parallel_config.pp_interleave_num}) cannot be proven on CPU: MindSpore interleaves "
            "stages in lazily inlined graphs only, which CPU does not execute; prove the same strategy with pp_interleave_num 1, "
            "and see the interleaved one with msllm rehearse compile and memory"
        )
    notes = changes(given, small)
    if not as_json and notes:
        typer.echo(f"rehearsed with {', '.join(notes)}")
    # What a message on the shrunk model means is said in its numbers, with the places where the given ones stand.
    shown = LoadedConfig(small, loaded.origins)
    with _folder(keep) as folder, _explained(shown):
        proof = prove(small, steps, tolerance, folder, jobs, lambda text: typer.echo(text, err=True))
        _print_proof(proof, notes, as_json)
        if not proof.verdict.passed:
            raise RunError(f"the sharded graphs do not compute what one device computes: {proof.verdict.worst}")


def _compile(
    config: list[Path],
    parallel: Path | None,
    devices: int | None,
    cluster_file: Path | None,
    ranks: str,
    jobs: int,
    keep: Path | None,
    overrides: list[str] | None,
    as_json: bool,
    memory: bool,
) -> list[dict[str, Any]]:
    from msllm.parallel.mesh import Mesh
    from msllm.rehearsal.chosen_ranks import choose_ranks
    from msllm.rehearsal.compilation import compile_ranks

    loaded, cluster = _load(config, parallel, devices, cluster_file, overrides)
    chosen = choose_ranks(ranks, Mesh.from_config(loaded.config.parallel_config))
    with _folder(keep) as folder, _explained(loaded), _progress(len(chosen), as_json) as done:
        reports = compile_ranks(
            loaded.config, chosen, cluster, folder, memory=memory, processes=jobs, done=lambda rank: done()
        )
    if as_json:
        print_json({"devices": loaded.config.parallel_config.device_num, "ranks": reports})
    else:
        _print_reports(reports, memory)
    return reports


def _load(
    config: list[Path],
    parallel: Path | None,
    devices: int | None,
    cluster_file: Path | None,
    overrides: list[str] | None,
) -> tuple[LoadedConfig, Cluster]:
    """A configuration that `msllm check` finds legal, and the cluster; InputError with all that is wrong."""
    from msllm.config.origin import LoadedConfig
    from msllm.config.sections import RunConfig

    reading, cluster, problems = read_strategy(config, parallel, overrides or [], devices, cluster_file)
    if problems:
        raise InputError(problems)
    run_config = RunConfig(**reading.sections)
    return LoadedConfig(run_config, reading.origins), cluster or cluster_of(run_config)


@contextmanager
def _explained(loaded: LoadedConfig) -> Iterator[None]:
    """RunError with what a process of the rehearsal that failed means for the configuration, in the place of its log."""
    from msllm.rehearsal.failures import explain_failure
    from msllm.rehearsal.process import SimulationFailed

    try:
        yield
    except SimulationFailed as error:
        problems = explain_failure(error.log, loaded)
        raise RunError("\n".join([*map(str, problems), f"MindSpore's own words: {error.log_file}"])) from None


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """The folder given, or a temporary one that stays where something went wrong, for its logs."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    folder = Path(tempfile.mkdtemp(prefix="msllm-rehearsal-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _progress(total: int, quiet: bool) -> Iterator[Any]:
    """A bar with the time left on a terminal, a line a rank elsewhere."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        finished = iter(range(1, total + 1))
        yield lambda: None if quiet else typer.echo(f"compiled {next(finished)} of {total} ranks", err=True)
        return
    columns = (TextColumn("compiling"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("compiling", total=total)
        yield lambda: progress.advance(task)


def _print_reports(reports: list[dict[str, Any]], memory: bool) -> None:
    from msllm.commands.rehearsal_tables import print_collectives, print_memory, print_ranks

    print_ranks(reports)
    print_collectives(reports)
    if memory:
        print_memory(reports)
        typer.echo(
            "the plan counts kernel workspace and HCCL buffers as nothing; the allowances for them are assumptions"
        )
    typer.echo(f"compiled on {_compiler()}; nothing ran on an NPU")


def _compiler() -> str:
    from msllm.rehearsal.environment import find_cann

    cann = find_cann()
    return f"MindSpore's dry run with CANN in {cann}" if cann else "simulated Ascend, with stand-ins for CANN"


def _print_proof(proof: Proof, notes: list[str], as_json: bool) -> None:
    verdict = proof.verdict
    if as_json:
        print_json(
            {
                "passed": verdict.passed,
                "tolerance": verdict.tolerance,
                "compared": verdict.compared,
                "worst": str(verdict.worst),
                "beyond": [str(difference) for difference in verdict.beyond],
                "missing": list(verdict.missing),
                "surplus": list(verdict.surplus),
                "losses": proof.losses,
                "changed": notes,
            }
        )
        return
    typer.echo(f"losses of one device: {' '.join(f'{loss:.6f}' for loss in proof.losses)}")
    typer.echo(f"compared {verdict.compared:,} tensors at their exact slices; worst: {verdict.worst}")
    for difference in verdict.beyond[:10]:
        typer.secho(f"wrong: {difference}", fg="red")
    for text in (*verdict.missing[:10], *verdict.surplus[:10]):
        typer.secho(f"not in both: {text}", fg="red")
    if verdict.passed:
        typer.secho(f"equal: every tensor within {verdict.tolerance:g}", fg="green")
