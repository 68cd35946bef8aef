"""The scheduler ends when the workers beside it have. A small script stands for msrun and the processes it starts."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from msllm.parallel.scheduler import is_scheduler

MSRUN = """
import os, subprocess, sys, time
def start(role):
    return subprocess.Popen([sys.executable, sys.argv[1]], env=os.environ | {"MS_ROLE": role})
scheduler = start("MS_SCHED")
workers = [start("MS_WORKER") for _ in range(2)]
for worker in workers:
    worker.wait()
print(scheduler.wait())
"""
JOB = """
import os, sys, time
from msllm.parallel.scheduler import end_with_workers
if os.environ["MS_ROLE"] == "MS_WORKER":
    time.sleep({worker})
    sys.exit()
end_with_workers(grace=2.0)
time.sleep({scheduler})
"""


def test_the_scheduler_ends_soon_after_its_workers(tmp_path: Path):
    """Seconds that workers and scheduler would take by themselves, and how the scheduler ends."""
    (tmp_path / "msrun.py").write_text(MSRUN)
    cases = {
        "workers gone at once": (0, 60, "-9"),
        "scheduler done first": (4, 1, "0"),
        "workers that take longer than the grace": (4, 5, "0"),
    }
    running = {}
    for name, (worker, scheduler, _) in cases.items():
        job = tmp_path / f"{name}.py"
        job.write_text(JOB.format(worker=worker, scheduler=scheduler))
        command = [sys.executable, str(tmp_path / "msrun.py"), str(job)]
        running[name] = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    ends = {name: process.communicate(timeout=50)[0].strip() for name, process in running.items()}
    assert ends == {name: code for name, (_, _, code) in cases.items()}


def test_the_role_tells_the_scheduler_from_the_workers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("MS_ROLE", raising=False)
    assert not is_scheduler()
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    assert not is_scheduler()
    monkeypatch.setenv("MS_ROLE", "MS_SCHED")
    assert is_scheduler()
