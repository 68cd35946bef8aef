"""A launcher that runs beside a test, and ranks that are a few lines (launch_stub.py)."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import tiny_runs

STUB = [sys.executable, str(Path(__file__).with_name("launch_stub.py"))]
PATIENCE = 240.0


class Job:
    """A launcher that runs, with what it says."""

    def __init__(self, command: list[str], folder: Path, name: str = "job"):
        self.said = folder / f"{name}.txt"
        with open(self.said, "wb") as output:
            environment = tiny_runs.environment(GLOG_v="3")
            self.process = subprocess.Popen(command, stdout=output, stderr=output, cwd=folder, env=environment)

    def text(self) -> str:
        return self.said.read_text(errors="replace")

    def wait_until(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + PATIENCE
        while not condition():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < limit, self.text()
            time.sleep(0.02)

    def end(self) -> int:
        try:
            return self.process.wait(PATIENCE)
        finally:
            self.process.kill()


def steps_of(folder: Path, rank: int) -> int:
    file = folder / "run" / f"at_{rank}"
    return int(file.read_text() or 0) if file.exists() else 0


def running(job: Job, folder: Path, steps: int = 2) -> None:
    job.wait_until(lambda: min(steps_of(folder, 0), steps_of(folder, 1)) > steps)
