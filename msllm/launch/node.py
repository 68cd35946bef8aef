"""One node of a job: starts its ranks when it is told to, tells how they are, and ends them in any case."""

from __future__ import annotations

import math
import os
import select
import signal
import socket
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from msllm.launch.agreement import Hello
from msllm.launch.channel import Channel, Closed, Message
from msllm.launch.logs import for_console
from msllm.launch.plan import SCHEDULER, Job
from msllm.launch.processes import Running, adopt_orphans, end, start_all
from msllm.launch.variables import OF_A_RANK
from msllm.parallel import progress

TICK = 0.05
STATUS_SECONDS = 1.0
STOPPED = 130
OK_WHEN_STOPPED = (0, STOPPED, -signal.SIGINT)
ERROR_SECONDS = 5.0
"""A rank that dies of its error has done so by then."""
INTERRUPT_GRACE = 30.0
"""Seconds in which ranks end after Ctrl-C; MindSpore's compiler lets it wait."""


class Node:
    """The launcher of one node.

    Args:
        job: as this node sees it.
        hello: what this node tells of itself.
        line, say: show a rank's line, and one of the launcher's own.
        node_timeout: seconds without a sign of node 0 after which this node ends.
        join_timeout: seconds until node 0 must be there.
        save_on_stop: whether Ctrl-C asks for a checkpoint.
        log_bytes: size at which a log is rotated.
        show_all: show what all ranks print, not rank 0 alone.
        watch_stdin: end when stdin does, as Ctrl-C when it says `stop`.
    """

    def __init__(
        self,
        job: Job,
        hello: Hello,
        line: Callable[[str], None],
        say: Callable[[str], None],
        node_timeout: float = 30.0,
        join_timeout: float = 300.0,
        save_on_stop: bool = False,
        log_bytes: int = 64 << 20,
        show_all: bool = False,
        watch_stdin: bool = False,
    ):
        self.job, self.hello = job, hello
        self._line, self._say = line, say
        self._node_timeout, self._join_timeout = node_timeout, join_timeout
        self._save_on_stop, self._log_bytes = save_on_stop, log_bytes
        self._show_all, self._watch_stdin = show_all, watch_stdin
        self._channel: Channel | None = None
        self._running: list[Running] = []
        self._told: set[int] = set()
        """Ranks whose end was told."""
        self._errors: dict[int, float] = {}
        """When a rank that lives has written an error; infinity once that was told."""
        self._progress: dict[int, tuple[Mapping[str, Any], float]] = {}
        self._done = False
        self._interrupts = 0
        self._interrupts_sent = 0
        self._by = "Ctrl-C"
        self._interrupted_at: float | None = None
        self._saving = False

    def run(self) -> Message:
        """Take part until the job is over; its last message. No process of the job is left on this node in any case."""
        adopt_orphans()
        before = {number: signal.signal(number, self._on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
        with tempfile.TemporaryDirectory(prefix="msllm-launch-") as scratch:
            self._scratch = Path(scratch)
            try:
                return self._connect() or self._take_part()
            finally:
                end(self._running)
                for number, handler in before.items():
                    signal.signal(number, handler)
                if self._channel:
                    self._channel.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._by = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        self._interrupts += 1

    def _connect(self) -> Message | None:
        """Find node 0; the end of the job where it does not come."""
        address, limit = (self.job.master_addr, self.job.control_port), time.monotonic() + self._join_timeout
        reason = ""
        while time.monotonic() < limit:
            self._read_stdin()
            if self._interrupts:
                return {"type": "end", "code": STOPPED, "problems": [], "failure": None, "stopped_by": self._by}
            try:
                self._channel = Channel(socket.create_connection(address, timeout=2.0))
                self._channel.send(self.hello.to_message())
                return None
            except (OSError, Closed) as error:
                reason = str(error)
                time.sleep(0.3)
        problems = list(self.hello.problems)
        failure = {
            "message": f"{self.hello.name} does not reach node 0's launcher at {address[0]} port {address[1]} for "
            f"{self._join_timeout:g} s ({reason}); start msllm launch --node-rank 0 there, with the same --master-addr and "
            "--control-port, and see that no firewall is between"
        }
        return {"type": "end", "code": 2 if problems else 1, "problems": problems, "failure": failure}

    def _take_part(self) -> Message:
        assert self._channel is not None
        heard = status = time.monotonic()
        while True:
            try:
                for message in self._channel.receive(TICK):
                    heard = time.monotonic()
                    if message["type"] == "end":
                        return message
                    self._obey(message)
                now = time.monotonic()
                self._pass_on_interrupts()
                self._watch()
                if now - status > STATUS_SECONDS:
                    status = now
                    self._channel.send({"type": "status", "ranks": self._records(now)})
            except Closed as error:
                return self._without_node_0(f"its launcher ended or was killed ({error})")
            if time.monotonic() - heard > self._node_timeout:
                return self._without_node_0(
                    f"no sign of it for {self._node_timeout:g} s; its host is down, or the network is cut"
                )

    def _without_node_0(self, why: str) -> Message:
        message = f"node 0 at {self.job.master_addr} is lost: {why}; the ranks of {self.hello.name} were ended"
        return {"type": "end", "code": 1, "problems": [], "failure": {"message": message}}

    def _obey(self, message: Message) -> None:
        kind = message["type"]
        if kind == "start":
            self._start(int(message["attempt"]), int(message["logs"]))
        elif kind == "interrupt":
            self._interrupted_at, self._saving = time.monotonic(), bool(message["save"])
            if self._saving:
                (self._scratch / "stop").touch()
            else:
                for one in self._running:
                    one.interrupt()
        elif kind == "stop":
            end(self._running)
            self._send({"type": "stopped"})

    def _start(self, attempt: int, logs: int) -> None:
        end(self._running)
        self._done, self._told, self._progress = False, set(), {}
        self._errors = {}
        resume = self.job.resume if attempt == 0 else "auto"
        inherited = {name: value for name, value in os.environ.items() if name not in OF_A_RANK}
        environment = {**inherited, **self.job.settings, progress.STOP_VARIABLE: str(self._scratch / "stop")}
        for file in self._scratch.glob("rank_*"):
            file.unlink()
        processes = []
        for process in self.job.processes(resume):
            own = {**process.environment, progress.FILE_VARIABLE: str(self._scratch / f"rank_{process.rank}.json")}
            processes.append(replace(process, environment=own))
        self._running = start_all(processes, environment, self.job.logs(logs), self._log_bytes, self._show)

    def _show(self, rank: int, line: str) -> None:
        if rank == 0 or (self._show_all and rank != SCHEDULER):
            shown = for_console(line, rank, tagged=self.job.workers > 1)
            if shown is not None:
                self._line(shown)

    def _watch(self) -> None:
        """Tell node 0 what has become of the ranks."""
        if not self._running or self._done:
            return
        workers = [one for one in self._running if not one.is_scheduler]
        codes = {one.rank: one.exit_code() for one in self._running}
        for one in self._running:
            code = codes[one.rank]
            if code is None:
                self._warn_of_error(one)
            elif code != 0 and one.rank not in self._told:
                self._told.add(one.rank)
                # How MindSpore's scheduler ends is of no interest once its workers have ended well.
                if not self._is_expected(code) and any(codes[worker.rank] != 0 for worker in workers):
                    self._report(one, code)
        if all(codes[worker.rank] is not None for worker in workers):
            fine = all(codes[worker.rank] == 0 for worker in workers)
            if fine or self._interrupted_at is not None:
                self._done = True
                self._send({"type": "done"})
        self._hurry()

    def _is_expected(self, code: int) -> bool:
        """Whether a rank was asked to end so."""
        if self._interrupted_at is None:
            return False
        return not self._saving or code in OK_WHEN_STOPPED

    def _report(self, one: Running, code: int) -> None:
        log = str(one.log.path)
        message = {"type": "failed", "rank": one.rank, "code": 2 if code == 2 else 1, "how": how_it_ended(code)}
        self._send({**message, "error": one.tail.error(), "log": log})

    def _warn_of_error(self, one: Running) -> None:
        """A rank may write an error and live on, waiting in a collective or for its threads."""
        if one.tail.first_error is None or one.is_scheduler:
            return
        now = time.monotonic()
        if now - self._errors.setdefault(one.rank, now) > ERROR_SECONDS:
            self._errors[one.rank] = math.inf  # told once
            self._say(f"warning: rank {one.rank} has written an error and runs on; its log: {one.log.path}")

    def _hurry(self) -> None:
        """After Ctrl-C without a checkpoint: end what does not end by itself."""
        if self._interrupted_at is None or self._saving or self._done:
            return
        if time.monotonic() - self._interrupted_at > INTERRUPT_GRACE:
            end(self._running)

    def _records(self, now: float) -> dict[int, dict[str, Any]]:
        """What the ranks have told, with the seconds since each told something new."""
        found = {}
        for one in self._running:
            if one.is_scheduler:
                continue
            told = progress.read(self._scratch / f"rank_{one.rank}.json") or {"phase": progress.STARTING}
            before = self._progress.get(one.rank)
            since = before[1] if before and before[0] == told else now
            self._progress[one.rank] = (told, since)
            found[one.rank] = {**told, "idle": now - since}
        return found

    def _pass_on_interrupts(self) -> None:
        self._read_stdin()
        while self._interrupts_sent < self._interrupts:
            self._interrupts_sent += 1
            now = self._interrupts_sent > 1
            self._send({"type": "interrupt", "by": self._by, "now": now, "save": self._save_on_stop})

    def _read_stdin(self) -> None:
        """What the launcher that started this one over ssh says; its end is the end of the job."""
        while self._watch_stdin and select.select([0], [], [], 0)[0]:
            said = os.read(0, 4096)
            self._interrupts += said.count(b"\n") if said else 2
            if not said:
                self._watch_stdin = False
                self._by = "the end of the launcher that started this node"

    def _send(self, message: Message) -> None:
        assert self._channel is not None
        self._channel.send(message)


def how_it_ended(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
    hints = {
        "SIGKILL": ", by hand or by the kernel for want of memory (see dmesg)",
        "SIGSEGV": ", a crash in native code",
        "SIGABRT": ", an abort in native code",
    }
    return f"was killed by {name}{hints.get(name, '')}"
