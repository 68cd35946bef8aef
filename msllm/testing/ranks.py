"""Run a script on several ranks of this machine, as msrun would, and come back in any case."""

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

SCHEDULER_SECONDS = 40.0
"""How long the scheduler may live on once msrun has said that a worker failed."""
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
    """Run a Python script on `ranks` processes under msrun, with this interpreter and a free port.

    The scheduler runs the script too, with MS_ROLE=MS_SCHED in its environment; `communication.init()` does not return there.
    `installed_script("msllm")` is the script of our own command.

    Args:
        script: path of the script.
        arguments: what it is given.
        ranks: number of worker processes.
        log_dir: folder for worker_<rank>.log, scheduler.log and msrun.log.
        timeout: seconds until all processes are killed.
        cwd: working folder of the processes.
        env: added to this process's environment.

    Returns:
        What each rank has printed, in rank order.

    Raises:
        InputError: there is no such script.
        RunError: a rank failed, or time ran out; with the end of the logs that say why.
    """
    script, log_dir = Path(script), Path(log_dir)
    if not script.is_file():
        raise InputError(Problem("no such script", script))
    log_dir.mkdir(parents=True, exist_ok=True)
    command = [
        *(str(installed_script("msrun")), "--worker_num", str(ranks), "--local_worker_num", str(ranks)),
        *("--master_port", str(free_port()), "--join", "True", "--log_dir", str(log_dir.resolve())),
        *(str(script.absolute()), *map(str, arguments)),
    ]
    # msrun starts its workers with the `python` of the PATH.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    with open(log_dir / "msrun.log", "wb") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, cwd=cwd, env={**os.environ, "PATH": path, **(env or {})}
        )
    try:
        failure = _wait(process, log_dir / "msrun.log", timeout)
    finally:
        kill_tree(process)
    logs = [_read(log_dir / f"worker_{rank}.log") for rank in range(ranks)]
    if failure:
        raise RunError(f"{script.name} on {ranks} ranks: {failure}\n{_explain(logs, log_dir)}")
    return logs


def installed_script(name: str) -> Path:
    """A command of this environment, such as msllm or msrun."""
    return Path(sys.executable).with_name(name)


def free_port() -> int:
    """A TCP port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill_tree(process: subprocess.Popen[bytes]) -> None:
    """End a process and all that descends from it; msrun's workers have sessions of their own."""
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


def _wait(process: subprocess.Popen[bytes], log: Path, timeout: float) -> str | None:
    """Wait for msrun's end; why it ended badly, if it did."""
    end, failed = time.monotonic() + timeout, False
    while process.poll() is None:
        if time.monotonic() > end:
            return "a rank failed" if failed else f"not done after {timeout:g} s"
        if not failed and "exit with exception" in _read(log):
            failed, end = True, min(end, time.monotonic() + SCHEDULER_SECONDS)
        time.sleep(0.2)
    return None if process.returncode == 0 else "a rank failed"


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
