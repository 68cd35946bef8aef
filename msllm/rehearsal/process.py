"""Simulated ranks as processes of their own: a few at a time, each with a log, ended with the rehearsal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any

from msllm.errors import RunError
from msllm.rehearsal.environment import simulated_environment


class SimulationFailed(RunError):
    """A process of a rehearsal ended without a result; `log` is all that it printed."""

    def __init__(self, name: str, log_file: Path, reason: str):
        self.log_file = log_file
        self.log = log_file.read_text(errors="replace")
        super().__init__(f"{name} {reason}; its log: {log_file}")


def run_module(
    module: str, spec: dict[str, Any], *, name: str, environment: dict[str, str], folder: Path, timeout: float = 1800.0
) -> dict[str, Any]:
    """Run `python -m module SPEC.json RESULT.json` and return the result.

    Args:
        module: of this package, with a command line of those two files.
        spec: what it is given.
        name: what the process is, for messages.
        environment: all of it.
        folder: for the spec, the result, the log and what MindSpore leaves in its working folder.
        timeout: seconds.

    Raises:
        SimulationFailed: no result in time, or none at all. A crash after the result is no failure: MindSpore may crash while
            it ends under simulation.
    """
    folder.mkdir(parents=True, exist_ok=True)
    spec_file, result_file, log_file = (folder / file for file in ("spec.json", "result.json", "worker.log"))
    spec_file.write_text(json.dumps(spec))
    result_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", module, str(spec_file.resolve()), str(result_file.resolve())]
    with open(log_file, "wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise SimulationFailed(name, log_file, f"did not end within {timeout:g} seconds") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if not result_file.exists():
        raise SimulationFailed(name, log_file, f"ended with exit code {process.returncode} and no result")
    return json.loads(result_file.read_text())


def run_simulated(
    spec: dict[str, Any], *, rank: int, size: int, level: int = 0, folder: Path, timeout: float = 1800.0
) -> dict[str, Any]:
    """Run `msllm.rehearsal.worker` as one simulated rank and return its result.

    Args:
        spec: see `worker.rehearse`; `rank` is added.
        rank, size: of the simulated job.
        level: MS_SIMULATION_LEVEL.
        folder: of the rehearsal; the rank has one of its own in it.
        timeout: seconds.

    Raises:
        SimulationFailed: as `run_module`.
    """
    return run_module(
        "msllm.rehearsal.worker",
        {**spec, "rank": rank},
        name=f"rank {rank}",
        environment=simulated_environment(rank, size, level),
        folder=folder / f"rank_{rank}",
        timeout=timeout,
    )


def run_simulated_ranks(
    spec_of: Callable[[int], dict[str, Any]],
    ranks: Sequence[int],
    *,
    size: int,
    level: int = 0,
    folder: Path,
    processes: int = 1,
    done: Callable[[int], None] = lambda rank: None,
) -> list[dict[str, Any]]:
    """`run_simulated` for several ranks, at most `processes` at once; the results in the order of `ranks`.

    The first failure ends the rest: what has not begun does not begin.
    """

    def run(rank: int) -> dict[str, Any]:
        result = run_simulated(spec_of(rank), rank=rank, size=size, level=level, folder=folder)
        done(rank)
        return result

    with ThreadPoolExecutor(processes) as pool:
        futures = [pool.submit(run, rank) for rank in ranks]
        wait(futures, return_when=FIRST_EXCEPTION)
        pool.shutdown(cancel_futures=True)
        failed = [future for future in futures if future.done() and not future.cancelled() and future.exception()]
        return [future.result() for future in (failed or futures)]
