"""A disk that is full stops a run with a message, and what was saved before is good to go on from."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_runs

from msllm.checkpoint.state import complete_checkpoints, damage_of

pytestmark = pytest.mark.fault

STEPS = 8


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder with room for a few checkpoints of the tiny model, about 170 KiB each."""
    folder = tmp_path / "disk"
    folder.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"mounting a tmpfs needs root: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("disk_full")
    return tiny_runs.write_config(folder / "run.yaml", tiny_runs.write_data(folder / "data"), STEPS)


def train(config: Path, output: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return tiny_runs.command("train", "-c", config, "-o", output, *arguments, cwd=config.parent)


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_checkpoint_that_does_not_fit_stops_the_run_and_leaves_the_ones_before(config: Path, small_disk: Path):
    run = small_disk / "run"
    done = train(config, run)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    good = complete_checkpoints(run / "checkpoints")
    assert 1 < len(good) < STEPS
    assert [damage_of(path) for path in good] == [[]] * len(good)
    assert names(run / "checkpoints") == {path.name for path in good}
    error = done.stderr.splitlines()[-1]
    assert error.startswith(f"error: {tiny_runs.checkpoint(run, len(good) + 1)}: cannot be written")
    assert "No space left on device" in error and "--resume auto" in error

    subprocess.run(["mount", "-o", "remount,size=50m", small_disk], check=True)
    done = train(config, run, "--resume", "auto")
    assert done.returncode == 0, done.stderr
    assert [step for step, _ in tiny_runs.losses(run)] == list(range(1, STEPS + 1))
    assert damage_of(tiny_runs.checkpoint(run, STEPS)) == []


@pytest.mark.parametrize("left", [4, 24], ids=lambda left: f"{left} KiB left")
def test_a_disk_that_fills_up_between_checkpoints_stops_the_run_with_one_message(
    config: Path, small_disk: Path, left: int
):
    """The configuration, logs, metrics and curves are what does not fit."""
    (small_disk / "full").write_bytes(bytes((900 - left) << 10))
    done = train(config, small_disk / "run", "--set", "checkpoint.save_steps=1000", "--set", "training.train_steps=100")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    errors = [line for line in done.stderr.splitlines() if not line.startswith(("step", "llama", "compiling"))]
    assert len(errors) == 1 and "No space left on device" in errors[0], done.stderr
    assert str(small_disk / "run") in errors[0]
