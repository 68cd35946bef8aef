"""`msllm evaluate`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from msllm.commands.mindspore_session import mindspore_session
from msllm.commands.options import AsJson, print_json
from msllm.commands.trained import Checkpoint, find_trained, load_model
from msllm.errors import InputError, Problem


def evaluate(
    checkpoint: Checkpoint,
    dataset: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Converted held-out text; default: the run's data.eval_dataset.")
    ] = None,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Rows of one forward pass; the result does not depend on it.")
    ] = 8,
    max_batches: Annotated[int | None, typer.Option(min=1, help="Stop after so many; default: all rows.")] = None,
    as_json: AsJson = False,
) -> None:
    """Perplexity of a trained model on held-out text, in float32.

    Example: msllm evaluate --checkpoint runs/a --dataset data/validation
    """
    from msllm.data.dataset import check_dataset
    from msllm.data.manifest import read_manifest
    from msllm.data.sampler import RankShare, SampleOrder

    trained = find_trained(checkpoint)
    folder = dataset or trained.config.data.eval_dataset
    if folder is None:
        raise InputError(Problem("was trained without data.eval_dataset; give one with --dataset", trained.path))
    manifest = read_manifest(folder)
    check_dataset(manifest, trained.config.data, trained.config.model)
    wanted = trained.tokenizer_fingerprint
    if manifest.tokenizer.fingerprint != wanted:
        raise InputError(
            Problem(
                f"made with another tokenizer ({manifest.tokenizer.fingerprint[:12]}) than the model's ({wanted[:12]})",
                manifest.directory,
            )
        )
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("evaluating"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with (
        mindspore_session(),
        Progress(*columns, console=console, disable=as_json or not console.is_terminal, transient=True) as progress,
    ):
        from msllm.data.dataset import RankBatches
        from msllm.parallel.reduce import SumOverRanks
        from msllm.training.evaluate import Evaluator, RowLoss, evaluation_share

        share = evaluation_share(RankShare(batch_size), batch_size, manifest.rows)
        batches = RankBatches(manifest, SampleOrder(manifest.rows, 0, shuffle=False), share, trained.config.data)
        rows = max_batches * batch_size if max_batches else None
        evaluator = Evaluator(RowLoss(load_model(trained)), batches, SumOverRanks(1), rows)
        task = progress.add_task("evaluating", total=evaluator.steps)
        loss = evaluator.loss(lambda done: progress.update(task, completed=done))
    result = {
        "checkpoint": str(trained.path),
        "dataset": str(folder),
        "rows": evaluator.rows,
        "tokens": evaluator.rows * manifest.seq_length,
        "loss": loss,
        "perplexity": math.exp(min(loss, 700.0)),
    }
    if as_json:
        print_json(result)
        return
    typer.echo(
        f"{trained.path}: loss {loss:.4f} nats a token, perplexity {result['perplexity']:.2f} "
        f"over {result['tokens']:,} tokens of {folder}"
    )
