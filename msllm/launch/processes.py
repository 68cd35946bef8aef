"""The processes of one node: started, read, and ended with all that descends from them."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import psutil

from msllm.launch.logs import RotatingLog, Tail
from msllm.launch.plan import SCHEDULER, Process

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_prctl = ctypes.CDLL(None, use_errno=True).prctl
"""Looked up before any fork."""


LONGEST_LINE = 1 << 16


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent dies, so that none can get away."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _die_with_parent() -> None:
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Running:
    """A started process of the job, in a session of its own; its output goes line by line to its log and to `show`."""

    def __init__(
        self,
        process: Process,
        environment: Mapping[str, str],
        log: RotatingLog,
        show: Callable[[int, str], None],
    ):
        self.rank, self.log, self.tail = process.rank, log, Tail()
        self._show = show
        self._read_to_end = False
        # A launcher that is killed takes its processes along: this must be called on the thread that lives longest.
        self.popen = subprocess.Popen(
            list(process.command),
            env={**environment, **process.environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_die_with_parent,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stream = self.popen.stdout
        assert stream is not None
        for raw in iter(lambda: stream.readline(LONGEST_LINE), b""):
            self.log.write(raw)
            for part in raw.decode(errors="replace").rstrip("\n").split("\r"):
                if part:
                    self.tail.add(part)
                    self._show(self.rank, part)

    @property
    def is_scheduler(self) -> bool:
        """Whether this is MindSpore's scheduler."""
        return self.rank == SCHEDULER

    def exit_code(self) -> int | None:
        """As Popen.poll; once the process is gone, what it said by then is in the tail."""
        code = self.popen.poll()
        if code is not None and not self._read_to_end:
            self._read_to_end = True
            self._reader.join(timeout=1.0)  # not for longer: a child that lives on keeps the pipe open
        return code

    def interrupt(self) -> None:
        """What Ctrl-C does."""
        self._signal(signal.SIGINT)

    def _signal(self, number: signal.Signals) -> None:
        if self.popen.poll() is None:
            os.kill(self.popen.pid, number)


def end(running: Iterable[Running], grace: float = 3.0) -> None:
    """End all processes of a node and all that descends from them: first asked, then killed. Returns when they are gone."""
    running = list(running)
    if not running:
        return
    family = _family()
    for number in (signal.SIGTERM, signal.SIGKILL):
        for member in family:
            try:
                member.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        _, family = psutil.wait_procs(family, timeout=grace)
        family = list({*family, *_family()})
        if not family:
            break
    for one in running:
        one.popen.wait()
        one.exit_code()
        one.log.close()


def _family() -> list[psutil.Process]:
    """All that descends from this launcher, which starts nothing but ranks, and what it was left by ranks that died."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def start_all(
    processes: Iterable[Process],
    environment: Mapping[str, str],
    folder: Path,
    log_bytes: int,
    show: Callable[[int, str], None],
) -> list[Running]:
    """Start processes with logs in `folder`; where one cannot be started, the others are ended again."""
    folder.mkdir(parents=True, exist_ok=True)
    started: list[Running] = []
    try:
        for process in processes:
            log = RotatingLog(folder / f"{process.name}.log", log_bytes)
            started.append(Running(process, environment, log, show))
    except BaseException:
        end(started)
        raise
    return started
