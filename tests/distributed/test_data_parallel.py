"""Two processes train as one does: the same losses and gradients, every sample once, over any change of number."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tiny_runs

from msllm.data.sampler import SampleOrder
from msllm.testing.datasets import counting_rows, write_dataset
from msllm.testing.ranks import free_port, installed_script, run_on_ranks

pytestmark = pytest.mark.distributed

STEPS, SPLIT, ROWS = 20, 8, 200
TWO_RANKS = ("--set", "parallel_config.data_parallel=2")
TIMEOUT = 240.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with run.yaml and a dataset whose rows begin with their number."""
    folder = tmp_path_factory.mktemp("data_parallel")
    rows = counting_rows(ROWS, tiny_runs.SEQ_LENGTH, tiny_runs.VOCAB)
    rows[:, 0], rows[:, 1] = np.divmod(np.arange(ROWS), 64)
    write_dataset(folder / "data", rows, tiny_runs.VOCAB, shards=2)
    tiny_runs.write_config(folder / "run.yaml", folder / "data", STEPS)
    return folder


class Run:
    """A finished run: its folder, and the rows that each rank read in each step."""

    def __init__(self, folder: Path, rows_folder: Path):
        self.folder = folder
        self.rows: dict[int, list[list[int]]] = {}
        for file in sorted(rows_folder.iterdir()):
            for line in map(json.loads, file.read_text().splitlines()):
                self.rows.setdefault(line["step"], []).append(line["rows"])

    def global_batches(self) -> dict[int, list[int]]:
        """Step -> rows of all ranks, in rank order."""
        return {step: sum(parts, []) for step, parts in self.rows.items()}


def rows_folder(folder: Path, name: str) -> Path:
    path = folder / f"{name}_rows"
    path.mkdir()
    return path


def on_two_ranks(folder: Path, name: str, *arguments: str) -> Run:
    rows = rows_folder(folder, name)
    command = ["train", "-c", "run.yaml", "-o", name, *TWO_RANKS, "--callback", "row_recorder:RowRecorder", *arguments]
    environment = tiny_runs.environment(ROWS_FOLDER=str(rows))
    environment["PYTHONPATH"] += f":{Path(__file__).parent}"
    logs = folder / f"{name}_ranks"
    run_on_ranks(installed_script("msllm"), command, log_dir=logs, timeout=TIMEOUT, cwd=folder, env=environment)
    return Run(folder / name, rows)


@pytest.fixture(scope="module")
def on_one(folder: Path) -> Callable[..., Run]:
    """Trains in this process."""

    def train(name: str, resume: str = "no") -> Run:
        rows = rows_folder(folder, name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ROWS_FOLDER", str(rows))
            tiny_runs.train(folder / "run.yaml", folder / name, resume=resume, callbacks=["row_recorder:RowRecorder"])
        return Run(folder / name, rows)

    return train


@pytest.fixture(scope="module")
def one(on_one) -> Run:
    return on_one("one")


@pytest.fixture(scope="module")
def two(folder: Path) -> Run:
    return on_two_ranks(folder, "two")


def test_every_loss_of_two_ranks_equals_that_of_one(one: Run, two: Run):
    ours, theirs = tiny_runs.losses(two.folder), tiny_runs.losses(one.folder)
    assert [step for step, _ in ours] == list(range(1, STEPS + 1))
    np.testing.assert_allclose([loss for _, loss in ours], [loss for _, loss in theirs], rtol=1e-5)
    assert theirs[-1][1] < 0.9 * theirs[0][1]  # it did learn


def test_the_first_gradients_of_two_ranks_equal_those_of_one(one: Run, two: Run):
    ours, theirs = (tiny_runs.tensors(run.folder, 1, "optimizer") for run in (two, one))
    moments = [name for name in ours if name.startswith("adam_m.")]
    assert len(moments) == len(tiny_runs.tensors(one.folder, 1))
    for name in moments:
        assert np.abs(ours[name] - theirs[name]).max() <= 1e-5 * np.abs(theirs[name]).max(), name
    norms = [tiny_runs.metrics(run.folder)[0]["grad_norm"] for run in (two, one)]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_two_ranks_share_the_batches_that_one_reads(one: Run, two: Run):
    assert all(len(parts) == 2 and len(parts[0]) == len(parts[1]) for parts in two.rows.values())
    assert two.global_batches() == one.global_batches()
    order = SampleOrder(ROWS, seed=42).rows_at(np.arange(STEPS * tiny_runs.BATCH))
    assert sum(two.global_batches().values(), []) == order.tolist()


def test_one_rank_goes_on_where_two_have_stopped(on_one, two: Run):
    rest = on_one("two_then_one", resume=str(tiny_runs.checkpoint(two.folder, SPLIT)))
    assert_goes_on(two, rest)


def test_two_ranks_go_on_where_one_has_stopped(folder: Path, one: Run):
    rest = on_two_ranks(folder, "one_then_two", "--resume", str(tiny_runs.checkpoint(one.folder, SPLIT)))
    assert all(len(parts) == 2 for parts in rest.rows.values())
    assert_goes_on(one, rest)


def assert_goes_on(first: Run, rest: Run) -> None:
    """`rest` has seen exactly the samples that `first` had not, none twice, and its losses are those of `first`."""
    seen = sum((rows for step, rows in first.global_batches().items() if step <= SPLIT), [])
    seen += sum(rest.global_batches().values(), [])
    assert len(seen) == len(set(seen)) == STEPS * tiny_runs.BATCH
    assert seen == sum(first.global_batches().values(), [])
    ours, theirs = tiny_runs.losses(rest.folder), tiny_runs.losses(first.folder)[SPLIT:]
    assert [step for step, _ in ours] == [step for step, _ in theirs]
    np.testing.assert_allclose([loss for _, loss in ours], [loss for _, loss in theirs], rtol=1e-5)


def test_each_rank_has_a_log_and_the_main_rank_alone_the_results(two: Run):
    logs = [(two.folder / "logs" / f"rank_{rank}.log").read_text() for rank in (0, 1)]
    assert all(f"step {STEPS}/{STEPS} loss" in log for log in logs)
    assert "saved" in logs[0] and "saved" not in logs[1]
    assert sorted(path.name for path in two.folder.parent.glob("two_ranks/worker_*")) == [
        "worker_0.log",
        "worker_1.log",
    ]
    assert "[rank 1] step 1/" in (two.folder.parent / "two_ranks" / "worker_1.log").read_text()


def test_a_stop_that_one_rank_asks_for_ends_all_at_the_same_step(folder: Path):
    environment = tiny_runs.environment()
    environment["PYTHONPATH"] += f":{Path(__file__).parent}"
    command = ["train", "-c", "run.yaml", "-o", "stopped", *TWO_RANKS, "--callback", "stop_on_rank_1:StopOnRankOne"]
    logs = folder / "stopped_ranks"
    run_on_ranks(installed_script("msllm"), command, log_dir=logs, timeout=TIMEOUT, cwd=folder, env=environment)
    assert [step for step, _ in tiny_runs.losses(folder / "stopped")] == [1, 2, 3]
    assert tiny_runs.checkpoint(folder / "stopped", 3).is_dir()
    for rank in (0, 1):
        assert "stopped at step 3 because a callback" in (folder / f"stopped/logs/rank_{rank}.log").read_text()


def under_msrun(folder: Path, logs: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As a user starts it."""
    command = ["msrun", "--worker_num", "2", "--local_worker_num", "2", "--master_port", str(free_port())]
    command += ["--join", "True", "--log_dir", logs, str(installed_script("msllm")), *arguments, *TWO_RANKS]
    environment = tiny_runs.environment()
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT)


@pytest.fixture(scope="module")
def launched(folder: Path) -> Iterator[tuple[Future, Future]]:
    """Two starts of msrun at the same time, as most of it is waiting: two ranks that train, and two with a mistake."""
    command = ("train", "-c", "run.yaml", "-s", "training.train_steps=2")
    with ThreadPoolExecutor() as pool:
        sound = pool.submit(under_msrun, folder, "sound_msrun", *command, "-o", "sound")
        wrong = pool.submit(
            under_msrun, folder, "wrong_msrun", *command, "-o", "wrong", "-s", "data.train_dataset=nowhere"
        )
        yield sound, wrong


def test_msrun_starts_the_same_run(folder: Path, launched: tuple[Future, Future]):
    done = launched[0].result()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [step for step, _ in tiny_runs.losses(folder / "sound")] == [1, 2]


def test_a_mistake_ends_all_processes_of_msrun_with_its_message(folder: Path, launched: tuple[Future, Future]):
    """MindSpore's scheduler alone would wait 10 minutes for the workers."""
    done = launched[1].result()
    assert done.returncode != 0
    assert "nowhere: no such folder" in (folder / "wrong_msrun" / "worker_0.log").read_text()
    said = done.stdout + done.stderr
    assert "Scheduler process" in said and "Distributed job exited with exception" in said  # msrun came to its own end
    assert not (folder / "wrong").exists()
