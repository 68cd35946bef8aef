"""The training loop: batches in, steps, metrics and checkpoints out, from the beginning or from a checkpoint."""

from __future__ import annotations

import errno
import platform
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from traceback import format_exception
from typing import Any

import mindspore as ms
import numpy as np

from msllm import __version__
from msllm.checkpoint.state import (
    TrainingState,
    checkpoint_name,
    complete_checkpoints,
    prune,
    save_state,
    step_of,
)
from msllm.checkpoint.together import Share, save_together
from msllm.config.sections import RunConfig
from msllm.config.stages import micro_batches
from msllm.data.dataset import RankBatches
from msllm.data.manifest import Manifest
from msllm.data.sampler import RankShare, SampleOrder
from msllm.errors import InputError, RunError
from msllm.parallel import progress
from msllm.parallel.reduce import SumOverRanks
from msllm.parallel.world import World
from msllm.training.agreement import Agreement
from msllm.training.build import build_row_loss, build_step
from msllm.training.callbacks import CallbackRunner
from msllm.training.console import RunConsole
from msllm.training.evaluate import Evaluator, evaluation_share
from msllm.training.feed import Fed, Feed, HostFeed, SinkFeed
from msllm.training.metrics import MetricsFile, StepMetrics, memory_bytes
from msllm.training.resume import changed_fields, dataset_fingerprint, restore, way_back
from msllm.training.run_directory import RunDirectory
from msllm.training.skips import SkippedSteps
from msllm.training.tensors import StepTensors


class Trainer:
    """One run on one rank.

    Args:
        config: of the run.
        model: the network, with its initial weights.
        train, evaluation: manifests of the datasets; evaluation may be None.
        directory: of the run, locked by the main rank.
        world: this rank's place.
        sharding: the module that cuts `model` over devices.
        callbacks: MindSpore callbacks, called around every step.
    """

    def __init__(
        self,
        config: RunConfig,
        model: Any,
        train: Manifest,
        evaluation: Manifest | None,
        directory: RunDirectory,
        world: World,
        sharding: Any,
        callbacks: Sequence[Any] = (),
    ):
        self.config, self.directory, self.world, self.train = config, directory, world, train
        training = config.training
        self.device_target = ms.get_context("device_target")
        self.console = RunConsole(world, directory.logs / f"rank_{world.rank}.log", training.train_steps)
        self.step_cell = build_step(config, model, world, sharding)
        self.tensors = StepTensors(self.step_cell, world)
        share = RankShare(training.global_batch_size, config.parallel_config.data_parallel, world.data_rank)
        self.batches = RankBatches(
            train, SampleOrder(train.rows, training.seed, config.data.shuffle), share, config.data
        )
        self.feed: Feed = HostFeed(self.step_cell, self.batches)
        if training.sink_size > 1:
            self.feed = SinkFeed(self.step_cell, self.batches, training.sink_size)
        self.evaluator = None
        if evaluation is not None:
            order = SampleOrder(evaluation.rows, training.seed, shuffle=False)
            batch_size = training.global_batch_size // micro_batches(config)
            eval_share = evaluation_share(share, batch_size, evaluation.rows)
            rank_batches = RankBatches(evaluation, order, eval_share, config.data)
            rows = training.eval_batches * training.global_batch_size if training.eval_batches else None
            # In semi-automatic parallel mode a graph's output is that of all ranks already.
            sum_ranks = None if world.semi_auto else SumOverRanks(world.size)
            row_loss = build_row_loss(config, model, world, sharding)
            self.evaluator = Evaluator(row_loss, rank_batches, sum_ranks, rows)
        self.agreement = Agreement(world)
        self.callbacks = CallbackRunner(callbacks, model, self.step_cell, training.train_steps, self.agreement)
        self.step = 0
        self.samples_seen = 0
        self.skipped = SkippedSteps(training.sink_size)
        self.last_saved: Path | None = None
        self._began_from: dict[int, Path] = {}

    def resume(self, checkpoint: Path, checked: bool = False) -> None:
        """Take up the run where `checkpoint` left it; InputError where it is damaged or belongs to another run.

        `checked`: every byte of it was compared with its checksum already.
        """
        state = restore(checkpoint, self.tensors, self.config, self.train, checked)
        self.step, self.samples_seen = state["step"], state["samples_seen"]
        total = int(self.step_cell.skipped_steps.asnumpy())
        self.skipped = SkippedSteps(self.config.training.sink_size, total, state["consecutive_overflows"])
        self.last_saved = checkpoint
        earlier = {step_of(path): path for path in complete_checkpoints(checkpoint.parent)}
        self._began_from = {step: path for step, path in earlier.items() if step < self.step} | {self.step: checkpoint}
        for line in changed_fields(checkpoint, self.config) if self.world.is_main else ():
            self.console.warning(f"changed since the checkpoint: {line}")
        self.console.info(f"resumed from {checkpoint}: step {self.step}, {self.samples_seen} samples seen")

    def run(self, raise_if_interrupted: Callable[[], None] = lambda: None) -> None:
        """Train until training.train_steps; `raise_if_interrupted` is called before what a step has done is kept.

        Raises:
            InputError: the ranks would go on from different steps.
            RunError: the loss is not finite, float16 overflows without end, or the disk is full.
        """
        self._check_same_step()
        metrics = None
        if self.world.is_main:
            metrics = MetricsFile(self.directory.metrics, self.directory.tensorboard, self.step + 1)
        try:
            self.console.start()
            self._introduce()
            self.callbacks.call("on_train_begin")
            self.callbacks.call("on_train_epoch_begin")
            self._loop(metrics, raise_if_interrupted)
            self.callbacks.call("on_train_epoch_end")
            self.callbacks.call("on_train_end")
        except RunError as error:
            cause = error.__cause__  # the exception of a user's callback
            self.console.failure(str(error) + ("\n" + "".join(format_exception(cause)) if cause else ""))
            raise
        except KeyboardInterrupt:
            self.console.failure(f"stopped by Ctrl-C after step {self.step}; {self._newest()}")
            raise
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            text = (
                f"{self.directory.path}: disk full in step {self.step} ({error.strerror}); {self._newest()}; make room, "
                f"then go on with --resume auto"
            )
            self.console.failure(text)
            raise RunError(text) from None
        finally:
            if metrics:
                metrics.close()
            self.console.close()

    def _check_same_step(self) -> None:
        """Where servers do not see the same folder, each takes up another checkpoint, and then all wait for each other."""
        main = self.agreement.of_main(self.step)
        if main != self.step:
            raise InputError(
                f"{self.directory.path}: rank 0 goes on from step {main}, rank {self.world.rank} from step {self.step}; all "
                f"ranks must see the same folder with the same checkpoints"
            )

    def _introduce(self) -> None:
        config = self.config
        size = sum(int(np.prod(self.tensors.full_shapes[p.name])) for p in self.step_cell.weights)
        tokens = config.training.global_batch_size * config.data.seq_length
        self.console.info(
            f"{config.model.model_type} with {size:,} parameters on {self.world.size} x {self.device_target}, "
            f"{config.training.amp_level} {config.training.compute_dtype}; {tokens:,} tokens a step, "
            f"{self.train.rows * config.data.seq_length / tokens:.1f} steps an epoch"
        )
        if self.step < config.training.train_steps:
            self.console.info("compiling the step graph; this can take a minute")

    def _loop(self, metrics: MetricsFile | None, raise_if_interrupted: Callable[[], None]) -> None:
        training = self.config.training

        def begin(steps: int, tokens: Any) -> None:
            self.callbacks.step_begin(self.step + steps, tokens)
            phase = progress.STEP if self.step > first else progress.COMPILING
            progress.tell(phase, step=self.step + steps, train_steps=training.train_steps)

        first, carried = self.step, 0.0
        for fed in self.feed.run(self.samples_seen, training.train_steps - self.step, begin):
            computed = time.perf_counter()
            raise_if_interrupted()
            self.step += fed.steps
            self.samples_seen += fed.steps * training.global_batch_size
            skipped = self.skipped.look(int(fed.values["skipped_steps"]), bool(fed.values["finite"]))
            if skipped:
                self._check_skipped(fed, skipped)
            stop = self.callbacks.step_end(fed.loss)
            last = stop or self.step == training.train_steps
            called = time.perf_counter()
            # The record before the checkpoint: a run that goes on from it would not write the record again.
            self._report(metrics, fed, skipped, carried + called - computed, last)
            self._evaluate_and_save(metrics, last)
            progress.tell(progress.BATCH, step=self.step + 1)
            carried = time.perf_counter() - called
            if stop:
                self.console.info(f"stopped at step {self.step} because a callback asked for it")
                break

    def _report(self, metrics: MetricsFile | None, fed: Fed, skipped: int, other_seconds: float, last: bool) -> None:
        training, values = self.config.training, fed.values
        total = fed.data_seconds + fed.compute_seconds + other_seconds
        record = StepMetrics(
            step=self.step,
            loss=values["loss"],
            lr=values["lr"],
            grad_norm=values["grad_norm"],
            loss_scale=values["loss_scale"],
            overflow=skipped > 0,
            tokens_per_second=fed.steps * training.global_batch_size * self.config.data.seq_length / total,
            samples_seen=self.samples_seen,
            step_seconds=total / fed.steps,
            data_seconds=fed.data_seconds / fed.steps,
            compute_seconds=fed.compute_seconds / fed.steps,
            other_seconds=other_seconds / fed.steps,
            memory_bytes=memory_bytes(self.device_target),
        )
        own = record.data_seconds + record.other_seconds
        times = {"step_seconds": record.step_seconds, "own_seconds": own}
        progress.tell(progress.STEP, step=self.step, tokens_per_second=record.tokens_per_second, **times)
        self.console.step(record, show=last or self.step % training.log_steps == 0)
        if metrics:
            metrics.write_step(record)

    def _check_skipped(self, fed: Fed, skipped: int) -> None:
        """Stop before steps without an update do harm; under a loss scale only when float16 overflows on and on."""
        values, in_a_row = fed.values, self.skipped.in_a_row
        if self.config.training.loss_scale is not None:
            if in_a_row < self.config.training.max_consecutive_overflows:
                return
            raise RunError(
                f"step {self.step}: {in_a_row} steps in a row overflowed float16 (loss scale is down to "
                f"{values['loss_scale']:g}); the last update seen was that of step {self.skipped.updated(self.step)}; "
                f"{self._way_back()}"
            )
        last = f"loss {values['loss']}, gradient norm {values['grad_norm']}"
        if fed.steps > 1:
            raise RunError(
                f"steps {self.step - fed.steps + 1} to {self.step}, rank {self.world.rank}: {skipped} of them not finite; the "
                f"last one had {last}. Those updates were not made; set training.sink_size to 1 to see which rows they were "
                f"of; {self._way_back()}"
            )
        where = "only in the gradient" if self.world.size == 1 else "on another rank, or only in the gradient"
        if not np.isfinite(values["local_loss"]):
            where = "here"
        rows = self.batches.row_ids(self.samples_seen - self.config.training.global_batch_size)
        raise RunError(
            f"step {self.step}, rank {self.world.rank}: {last}: not finite {where} (local loss {values['local_loss']}). Rows of "
            f"this rank's batch in {self.train.directory}: {rows}. The update was not made; {self._way_back()}"
        )

    def _way_back(self) -> str:
        return way_back(self._checkpoints(), self.skipped.updated(self.step), unseen=self.config.training.sink_size > 1)

    def _newest(self) -> str:
        found = self._checkpoints()
        return f"last checkpoint: {found[max(found)]}" if found else "there is no checkpoint yet"

    def _checkpoints(self) -> dict[int, Path]:
        """By step, what is complete on the disk now: the main rank may be in the middle of writing one."""
        return self._began_from | {step_of(path): path for path in complete_checkpoints(self.directory.checkpoints)}

    def _evaluate_and_save(self, metrics: MetricsFile | None, last: bool) -> None:
        training, checkpoint = self.config.training, self.config.checkpoint
        due = training.eval_steps is not None and self.step % training.eval_steps == 0
        if self.evaluator and (due or last):
            progress.tell(progress.EVALUATING)
            loss = self.evaluator.loss(lambda batches: progress.tell(progress.EVALUATING, batches=batches))
            self.step_cell.set_train(True)
            self.console.info(f"step {self.step} eval loss {loss:.4f} perplexity {np.exp(loss):.2f}")
            if metrics:
                metrics.write_eval(self.step, loss)
        if last or self.step % checkpoint.save_steps == 0:
            if metrics:
                metrics.sync()
            if self.world.is_main or self.world.semi_auto:
                progress.tell(progress.SAVING)
                self._save()
            self.last_saved = self.directory.checkpoints / checkpoint_name(self.step)

    def _save(self) -> None:
        """On the main rank; where the ranks hold slices, on all of them."""
        state = {
            "step": self.step,
            "samples_seen": self.samples_seen,
            "consecutive_overflows": self.skipped.in_a_row,
            "seed": self.config.training.seed,
            "dataset": dataset_fingerprint(self.train),
            "versions": {
                "msllm": __version__,
                "mindspore": ms.__version__,
                "numpy": np.__version__,
                "python": platform.python_version(),
            },
        }
        root, config, held = self.directory.checkpoints, self.config, self.tensors.held()
        values = self.tensors.values(held)
        if self.world.semi_auto:
            content = Share(values, held, self.tensors.full_shapes, state)
            path = save_together(root, self.step, content, config, self.world, self.agreement.any)
        else:
            path = save_state(root, self.step, TrainingState(values["model"], values["optimizer"], state), config)
        if not self.world.is_main:
            return
        prune(self.directory.checkpoints, self.config.checkpoint.keep_last, self.config.checkpoint.keep_every)
        self.console.info(f"saved {path}")
