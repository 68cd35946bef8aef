"""`msllm train`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from msllm.commands.options import AsJson, ConfigFiles, Overrides, ParallelFile, load_from_options
from msllm.errors import InputError

if TYPE_CHECKING:
    from msllm.config.origin import LoadedConfig

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
    run(loaded, output, resume, callback or [], as_json)


def run(loaded: LoadedConfig, output: Path, resume: str, callbacks: list[str], as_json: bool) -> None:
    """Check all that can be checked without MindSpore, then build and train. InputError and RunError as they come."""
    from msllm.config.checks import not_trainable_yet, unsupported_on
    from msllm.config.load import write_resolved
    from msllm.data.dataset import check_dataset, check_same_tokenizer
    from msllm.data.manifest import read_manifest
    from msllm.parallel.world import check_world, is_scheduler, launched_rank, resolve_device_target, run_scheduler
    from msllm.training.run_directory import RunDirectory

    config = loaded.config
    if is_scheduler():
        run_scheduler(config.training.device_target)
        return
    problems = not_trainable_yet(loaded)
    problems += unsupported_on(loaded, resolve_device_target(config.training.device_target))
    if problems:
        raise InputError(problems)
    check_world(config.parallel_config)
    train_data = read_manifest(config.data.train_dataset)
    check_dataset(train_data, config.data, config.model, config.training.global_batch_size)
    eval_data = None
    if config.data.eval_dataset is not None:
        eval_data = read_manifest(config.data.eval_dataset)
        check_dataset(eval_data, config.data, config.model)
        check_same_tokenizer(train_data, eval_data)
    directory = RunDirectory(output)
    directory.create()
    main = launched_rank() == 0
    if main:
        directory.acquire()

    import mindspore as ms

    from msllm.checkpoint.state import remove_after
    from msllm.parallel.world import init_world
    from msllm.registry import build_model
    from msllm.training.callbacks import load_callback
    from msllm.training.resume import changed_fields, choose_checkpoint
    from msllm.training.trainer import Trainer

    made_callbacks = [load_callback(path) for path in callbacks]
    checkpoint, passed_over = choose_checkpoint(resume, directory)
    world = init_world(config.parallel_config, config.training.device_target)
    ms.set_seed(config.training.seed)
    trainer = Trainer(config, build_model(config.model), train_data, eval_data, directory, world, made_callbacks)
    for problem in passed_over:
        trainer.console.warning(f"passed over a damaged checkpoint: {problem}")
    if checkpoint is not None:
        for line in changed_fields(checkpoint, config) if main else ():
            trainer.console.warning(f"changed since the checkpoint: {line}")
        trainer.resume(checkpoint)
    if main:
        directory.forget_after(trainer.step)
        remove_after(directory.checkpoints, trainer.step)
        write_resolved(config, directory.config)
        directory.keep_tokenizer(train_data.directory / train_data.tokenizer.file)
    trainer.run()
    if main:
        summary = {"run": str(output), "step": trainer.step, "checkpoint": str(trainer.last_saved)}
        typer.echo(json.dumps(summary) if as_json else f"done: step {trainer.step}, {trainer.last_saved}")
