"""`msllm train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msllm.commands.mindspore_session import mindspore_session
from msllm.commands.options import AsJson, ConfigFiles, Overrides, ParallelFile, load_from_options
from msllm.errors import InputError, Problem
from msllm.parallel import progress

if TYPE_CHECKING:
    from msllm.config.origin import LoadedConfig
    from msllm.data.manifest import Manifest
    from msllm.training.run_directory import RunDirectory
    from msllm.training.trainer import Trainer

Output = Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the run.")]
Resume = Annotated[
    str,
    typer.Option(
        "--resume",
        metavar="no|auto|CHECKPOINT",
        help="no: begin, in a folder without a run. auto: go on from the newest complete checkpoint of --output, or begin. "
        "CHECKPOINT: go on from that folder.",
    ),
]
InitWeights = Annotated[
    Path | None,
    typer.Option("--init-weights", metavar="DIR", help="Hugging Face folder whose weights the run begins with."),
]
Callbacks = Annotated[
    list[str] | None,
    typer.Option("--callback", metavar="MODULE:CLASS", help="A MindSpore Callback of yours; repeat it for more."),
]


def train(
    config: ConfigFiles,
    output: Output,
    parallel: ParallelFile = None,
    overrides: Overrides = None,
    resume: Resume = "no",
    init_weights: InitWeights = None,
    callback: Callbacks = None,
    as_json: AsJson = False,
) -> None:
    """Train a model, or go on with a run that stopped.

    One process:  msllm train -c models/llama/configs/llama_tiny.yaml --output runs/a

    Two processes, data parallel:  msrun --worker_num 2 --local_worker_num 2 --join True --log_dir runs/a/msrun
    $(which msllm) train -c models/llama/configs/llama_tiny.yaml -p parallel_configs/tiny_dp2.yaml --output runs/a

    After a stop, the same line with --resume auto goes on and ends with the same weights, bit for bit.
    """
    loaded = load_from_options(config, parallel, overrides)
    run(loaded, output, resume, init_weights, callback or [], as_json)


def run(
    loaded: LoadedConfig, output: Path, resume: str, init_weights: Path | None, callbacks: list[str], as_json: bool
) -> None:
    """Check all that can be checked without MindSpore, then build and train. InputError and RunError as they come."""
    from msllm.parallel.scheduler import is_scheduler, run_scheduler
    from msllm.parallel.world import launched_rank, resolve_device_target
    from msllm.training.run_directory import RunDirectory

    if is_scheduler():
        run_scheduler(resolve_device_target(loaded.config.training.device_target))
        return
    train_data, eval_data = check(loaded)
    if resume not in ("no", "auto") and not Path(resume).is_dir():
        what = "is a file" if Path(resume).exists() else "no such checkpoint folder"
        raise InputError(Problem(f"{what}; --resume takes no, auto or a checkpoint's folder", resume))
    directory = RunDirectory(output)
    directory.create()
    main = launched_rank() == 0
    if main:
        directory.acquire()

    from msllm.training.resume import choose_checkpoint

    checkpoint, passed_over = choose_checkpoint(resume, directory)
    weights = _pretrained(init_weights, loaded) if init_weights and checkpoint is None else None
    progress.tell(progress.STARTING)
    with mindspore_session(directory.logs) as raise_if_interrupted:
        trainer = _trainer(loaded, train_data, eval_data, directory, callbacks, weights)
        for problem in passed_over:
            trainer.console.warning(f"passed over a damaged checkpoint: {problem}")
        if checkpoint is not None:
            trainer.resume(checkpoint, checked=True)
        if main:
            directory.begin(loaded.config, train_data.directory / train_data.tokenizer.file, trainer.step)
        trainer.run(raise_if_interrupted)
    if main:
        summary = {"run": str(output), "step": trainer.step, "checkpoint": str(trainer.last_saved)}
        typer.echo(json.dumps(summary) if as_json else f"done: step {trainer.step}, {trainer.last_saved}")


def check(loaded: LoadedConfig, processes: int | None = None) -> tuple[Manifest, Manifest | None]:
    """Everything about a run that shows without MindSpore; the manifests of its training and evaluation data.

    `processes`: how many there are, or will be; None: as many as were started.

    Raises:
        InputError: what this version, this device, the processes started or the data do not allow.
    """
    from msllm.config.checks import unsupported_on, wrong_device_number
    from msllm.data.dataset import check_dataset, check_same_tokenizer
    from msllm.data.manifest import read_manifest
    from msllm.parallel.world import launched_processes, resolve_device_target

    config = loaded.config
    problems = unsupported_on(loaded, resolve_device_target(config.training.device_target))
    # A strategy that this device cannot train is not to be told how to start more processes.
    if not problems:
        problems = wrong_device_number(
            config.parallel_config, loaded.origins, processes or launched_processes(), started=True
        )
    if problems:
        raise InputError(problems)
    wanted = [(config.data.train_dataset, config.training.global_batch_size)]
    if config.data.eval_dataset is not None:
        wanted.append((config.data.eval_dataset, 1))
    manifests = []
    for folder, rows in wanted:
        try:
            manifests.append(read_manifest(folder))
            check_dataset(manifests[-1], config.data, config.model, rows)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    if len(manifests) == 1:
        return manifests[0], None
    check_same_tokenizer(*manifests)
    return manifests[0], manifests[1]


def _pretrained(folder: Path, loaded: LoadedConfig) -> dict[str, Any]:
    from msllm.commands.weights import read_pretrained

    _, weights, notes = read_pretrained(folder, expected=loaded.config.model)
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    return weights


def _trainer(
    loaded: LoadedConfig,
    train_data: Manifest,
    eval_data: Manifest | None,
    directory: RunDirectory,
    callbacks: list[str],
    weights: dict[str, Any] | None,
) -> Trainer:
    import mindspore as ms

    from msllm.parallel.world import init_world
    from msllm.registry import build_model, sharding
    from msllm.training.build import set_tensors
    from msllm.training.callbacks import load_callback
    from msllm.training.trainer import Trainer

    made_callbacks = [load_callback(path) for path in callbacks]
    progress.tell(progress.JOINING)
    config = loaded.config
    world = init_world(config.parallel_config, config.training.device_target, directory.strategies)
    ms.set_seed(loaded.config.training.seed)
    model = build_model(loaded.config.model)
    if weights is not None:
        set_tensors(model, weights)
    cut = sharding(loaded.config.model)
    return Trainer(loaded.config, model, train_data, eval_data, directory, world, cut, made_callbacks)
