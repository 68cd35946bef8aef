"""MindSpore's own Model.train drives our step cell, and our loop drives users' own callbacks."""

from __future__ import annotations

import gc
from pathlib import Path

import mindspore as ms
import mindspore.dataset as ds
import numpy as np
import pytest
import tiny_runs
from mindspore.train import Callback, LossMonitor, Model

from msllm.config.sections import RunConfig
from msllm.data.sampler import SampleOrder
from msllm.errors import InputError, RunError
from msllm.parallel.world import World
from msllm.registry import build_model, sharding
from msllm.testing.datasets import counting_rows
from msllm.training.build import build_step
from msllm.training.callbacks import load_callback


class Recorder(Callback):
    """Notes which hook is called at which step, and what the callback is shown."""

    seen: list[tuple[str, int]] = []
    losses: list[float] = []
    batches: list[np.ndarray] = []

    def __init__(self):
        super().__init__()
        for record in (self.seen, self.losses, self.batches):
            record.clear()

    def on_train_begin(self, run_context):
        self.note("begin", run_context)

    def on_train_epoch_begin(self, run_context):
        self.note("epoch_begin", run_context)

    def on_train_step_begin(self, run_context):
        self.note("step_begin", run_context)
        self.batches.append(run_context.original_args().train_dataset_element[0].asnumpy())

    def on_train_step_end(self, run_context):
        self.note("step_end", run_context)
        params = run_context.original_args()
        outputs = params.net_outputs
        self.losses.append(float((outputs[0] if isinstance(outputs, tuple) else outputs).asnumpy()))
        assert params.train_network.global_step.asnumpy() == params.cur_step_num
        assert params.batch_num >= params.cur_step_num and params.cur_epoch_num == 1

    def on_train_epoch_end(self, run_context):
        self.note("epoch_end", run_context)

    def on_train_end(self, run_context):
        self.note("end", run_context)

    def note(self, hook: str, run_context) -> None:
        self.seen.append((hook, run_context.original_args().cur_step_num))


class StopAtThree(Callback):
    """What a user's early stopping does."""

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == 3:
            run_context.request_stop()


class Broken(Callback):
    """A user's mistake, in the second step."""

    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num == 2:
            raise ValueError("the user's own words")


class BrokenFromTheStart(Callback):
    def __init__(self):
        raise RuntimeError("no licence")


class NeedsArguments(Callback):
    def __init__(self, every: int):
        super().__init__()


class NoCallback:
    pass


def expected_hooks(steps: int) -> list[tuple[str, int]]:
    each = [(hook, step) for step in range(1, steps + 1) for hook in ("step_begin", "step_end")]
    return [("begin", 0), ("epoch_begin", 0), *each, ("epoch_end", steps), ("end", steps)]


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("callbacks")
    return tiny_runs.write_config(folder / "run.yaml", tiny_runs.write_data(folder / "data"), steps=4)


@pytest.fixture(scope="module")
def our_run(config: Path) -> tuple[Path, list, list, list]:
    """A run of ours with the recorder and MindSpore's own LossMonitor: (folder, hooks, losses, batches)."""
    run = tiny_runs.train(
        config,
        config.parent / "ours",
        callbacks=("test_callbacks:Recorder", "mindspore.train:LossMonitor"),
    )
    return run, list(Recorder.seen), list(Recorder.losses), list(Recorder.batches)


def test_our_loop_calls_every_hook_of_a_users_callback(our_run):
    _, seen, _, _ = our_run
    assert seen == expected_hooks(4)


def test_a_callback_sees_the_loss_and_the_batch_of_each_step(our_run):
    run, _, losses, batches = our_run
    assert losses == [loss for _, loss in tiny_runs.losses(run)]
    order = SampleOrder(tiny_runs.ROWS, seed=42)
    rows = counting_rows(tiny_runs.ROWS, tiny_runs.SEQ_LENGTH, tiny_runs.VOCAB)
    for step, batch in enumerate(batches):
        assert np.array_equal(batch, rows[order.rows_at(np.arange(8) + 8 * step)])


def test_mindspores_model_trains_our_step_cell_with_the_same_losses(config: Path, our_run, capsys):
    """`Model.train` with a user's own dataset, callbacks and LossMonitor."""
    _, _, losses, batches = our_run
    run_config: RunConfig = tiny_runs.load(config).config
    gc.collect()  # see cpu_device in conftest.py
    ms.set_seed(run_config.training.seed)
    step = build_step(run_config, build_model(run_config.model), World(), sharding(run_config.model))
    dataset = ds.NumpySlicesDataset(np.concatenate(batches), column_names=["input_ids"], shuffle=False).batch(8)
    Model(step).train(1, dataset, callbacks=[LossMonitor(1), Recorder()], dataset_sink_mode=False)
    assert Recorder.losses == losses
    assert [hook for hook, _ in Recorder.seen] == [hook for hook, _ in expected_hooks(4)]
    assert f"loss is {losses[0]:.4f}"[:12] in capsys.readouterr().out


def test_a_callback_that_asks_to_stop_ends_the_run_with_a_checkpoint(config: Path, our_run):
    run = config.parent / "stopped"
    tiny_runs.train(config, run, "checkpoint.save_steps=100", callbacks=("test_callbacks:StopAtThree",))
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_00000003"]
    assert tiny_runs.losses(run) == tiny_runs.losses(our_run[0])[:3]
    assert tiny_runs.weights(run, 3) == tiny_runs.weights(our_run[0], 3)


def test_a_callback_that_fails_ends_the_run_by_its_name_and_its_traceback_is_in_the_log(config: Path):
    run = config.parent / "broken"
    with pytest.raises(RunError) as error:
        tiny_runs.train(config, run, callbacks=("test_callbacks:Broken",))
    line = next(n for n, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "raise ValueError" in text)
    assert str(error.value) == (
        "callback test_callbacks:Broken failed in on_train_step_end, step 2: "
        f"ValueError: the user's own words ({__file__}:{line}); its traceback is in the log of this rank"
    )
    log = (run / "logs" / "rank_0.log").read_text()
    assert "Traceback (most recent call last)" in log and f'{__file__}", line {line}' in log
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step_00000001"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("test_callbacks:Missing", "Missing"),
        ("no_such_module_here:Thing", "no_such_module_here"),
        ("test_callbacks", "package.module:Class"),
        (":Thing", "package.module:Class"),
        ("test_callbacks:NeedsArguments", "every"),
        ("test_callbacks:BrokenFromTheStart", "cannot be made: RuntimeError: no licence"),
        ("test_callbacks:NoCallback", "must derive from mindspore.train.Callback"),
    ],
)
def test_what_is_no_callback_is_refused(path: str, reason: str):
    with pytest.raises(InputError) as error:
        load_callback(path)
    assert f"--callback {path}" in str(error.value) and reason in str(error.value)
