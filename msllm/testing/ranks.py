"""Run a script on several ranks of this machine and come back in any case."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

from msllm.errors import InputError, Problem, RunError

TAIL_LINES = 20


def run_on_ranks(
    script: str | Path,
    arguments: Sequence[str | Path] = (),
    *,
    ranks: int = 2,
    log_dir: str | Path,
    timeout: float = 300.0,
    cwd: str | Path | None = None,
    env: Mapping[str, str] | None = None,
) -> list[str]:
    """Run a Python script on `ranks` processes with this interpreter and a free port.

    The processes get the environment that msrun gives them, and a scheduler, which runs the script too, with
    MS_ROLE=MS_SCHED; `communication.init()` does not return there. msrun itself is not started: it imports MindSpore first,
    and at the end waits for the scheduler, which takes longer than most tests.
    `installed_script("msllm")` is the script of our own command.

    Args:
        script: path of the script.
        arguments: what it is given.
        ranks: number of worker processes.
        log_dir: folder for worker_<rank>.log and scheduler.log.
        timeout: seconds until all processes are killed.
        cwd: working folder of the processes.
        env: added to this process's environment.

    Returns:
        What each rank has printed, in rank order.

    Raises:
        InputError: there is no such script.
        RunError: a rank failed, or time ran out; with the end of the logs that say why. No process is left in any case.
    """
    script, log_dir = Path(script), Path(log_dir)
    if not script.is_file():
        raise InputError(Problem("no such script", script))
    log_dir.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, str(script.absolute()), *map(str, arguments)]
    own = {**os.environ, **(env or {}), **_job(ranks)}
    logs = [log_dir / f"worker_{rank}.log" for rank in range(ranks)]
    processes = []
    try:
        scheduler = _start(command, own | {"MS_ROLE": "MS_SCHED", "RANK_ID": "0"}, cwd, log_dir / "scheduler.log")
        processes.append(scheduler)
        for rank, log in enumerate(logs):
            place = {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank), "RANK_ID": str(rank), "DEVICE_ID": str(rank)}
            processes.append(_start(command, own | place, cwd, log))
        failure = _wait(processes[1:], timeout)
    finally:
        for process in processes:
            kill_tree(process)
    texts = [_read(log) for log in logs]
    if failure:
        raise RunError(f"{script.name} on {ranks} ranks: {failure}\n{_explain(texts, log_dir)}")
    return texts


def _job(ranks: int) -> dict[str, str]:
    """What all processes of a job are told (mindspore/parallel/cluster/process_entity/_api.py)."""
    return {
        "MS_WORKER_NUM": str(ranks),
        "RANK_SIZE": str(ranks),
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": str(free_port()),
        "MS_TOPO_TIMEOUT": "600",
    }


def _start(command: list[str], env: dict[str, str], cwd: str | Path | None, log: Path) -> subprocess.Popen[bytes]:
    with open(log, "wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, cwd=cwd, env=env)


def installed_script(name: str) -> Path:
    """A command of this environment, such as msllm or msrun."""
    return Path(sys.executable).with_name(name)


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that descends from it."""
    try:
        descendants = psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        descendants = []
    process.kill()
    for descendant in descendants:
        try:
            descendant.kill()
        except psutil.NoSuchProcess:
            continue
    psutil.wait_procs(descendants, timeout=10)
    process.wait()


def _wait(workers: Sequence[subprocess.Popen[bytes]], timeout: float) -> str | None:
    """Wait until all workers have ended, or one badly; why that was, if it was."""
    end = time.monotonic() + timeout
    while True:
        codes = [worker.poll() for worker in workers]
        if any(codes):
            return "a rank failed"
        if None not in codes:
            return None
        if time.monotonic() > end:
            return f"not done after {timeout:g} s"
        time.sleep(0.1)


def _explain(logs: list[str], log_dir: Path) -> str:
    """The ends of the logs that tell of an error, or of all where none does."""
    telling = [rank for rank, text in enumerate(logs) if "Traceback" in text or "error: " in text]
    parts = []
    for rank in telling or range(len(logs)):
        tail = "\n".join(f"  {line}" for line in logs[rank].splitlines()[-TAIL_LINES:])
        parts.append(f"rank {rank}, end of {log_dir / f'worker_{rank}.log'}:\n{tail or '  (nothing)'}")
    return "\n".join(parts)


def _read(file: Path) -> str:
    return file.read_text(errors="replace") if file.exists() else ""
