"""kill -9, again and again: the run that comes out is the one that was never killed, bit for bit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tiny_runs

from msllm.checkpoint.state import complete_checkpoints, step_of

pytestmark = [pytest.mark.fault, pytest.mark.slow]

STEPS, KILLS = 60, 10
SEED = int(os.environ.get("MSLLM_TEST_SEED", os.getpid()))
PATIENCE = 120.0


def start(config: Path, run: Path) -> subprocess.Popen[bytes]:
    msllm = str(Path(sys.executable).with_name("msllm"))
    command = [msllm, "train", "-c", str(config), "-o", str(run), "--resume", "auto", "--set", "checkpoint.keep_last=3"]
    with open(config.parent / "killed.log", "ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=tiny_runs.environment(), cwd=config.parent)


def newest_step(run: Path) -> int:
    return max((step_of(path) for path in complete_checkpoints(run / "checkpoints")), default=0)


def saving(run: Path) -> bool:
    """Whether a save is on its way: a temporary folder, or a folder that has no marker yet."""
    unfinished = (path for path in run.glob("checkpoints/step_*") if not (path / "COMPLETE").exists())
    return any(run.glob("checkpoints/.step_*")) or any(unfinished)


def wait_until(condition, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, f"ended by itself with {process.returncode}"
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.001)


def kill_once(config: Path, run: Path, number: int, draw: random.Random) -> str:
    """Start or resume the run and kill it: while it starts, inside a save, or at any moment after its first new step."""
    before = newest_step(run)
    process = start(config, run)
    try:
        if number == 0:
            time.sleep(draw.uniform(0.5, 4.0))
        else:
            wait_until(lambda: newest_step(run) > before, process)
            if number % 2:
                wait_until(lambda: saving(run), process)
                time.sleep(draw.uniform(0.0, 0.01))
            else:
                time.sleep(draw.uniform(0.0, 0.3))
        assert process.poll() is None, "the run was over before it could be killed"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    return f"kill {number}: steps {before} to {newest_step(run)}, {'inside' if saving(run) else 'outside'} a save"


def test_a_run_that_is_killed_ten_times_ends_as_if_it_had_not_been(tmp_path: Path):
    config = tiny_runs.write_config(tmp_path / "run.yaml", tiny_runs.write_data(tmp_path / "data"), STEPS)
    whole, run = tmp_path / "whole", tmp_path / "run"
    tiny_runs.train(config, whole, "checkpoint.keep_last=3")
    draw = random.Random(SEED)
    story = [kill_once(config, run, number, draw) for number in range(KILLS)]
    print(f"MSLLM_TEST_SEED={SEED}", *story, sep="\n")
    assert any("inside a save" in line for line in story)
    assert newest_step(run) < STEPS

    done = start(config, run)
    assert done.wait(PATIENCE) == 0, (config.parent / "killed.log").read_text()[-2000:]
    assert tiny_runs.losses(run) == tiny_runs.losses(whole)
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        ours, theirs = (tiny_runs.checkpoint(folder, STEPS) / name for folder in (run, whole))
        assert ours.read_bytes() == theirs.read_bytes(), name
    kept = [f"step_{step:08d}" for step in (STEPS - 2, STEPS - 1, STEPS)]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == kept
    assert b"Traceback" not in (config.parent / "killed.log").read_bytes()
