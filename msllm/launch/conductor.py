"""What node 0 decides for a job: when it starts, which failure ends it, whether it starts again, how it ends.

Events and time come in by method, decisions go out by `send`; no socket and no clock is in here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from msllm.launch.agreement import Hello, disagreements
from msllm.launch.channel import Message
from msllm.launch.logs import follows_another
from msllm.launch.view import View, view
from msllm.parallel.progress import BEFORE_STEPS

SETTLE_SECONDS = 1.0
"""After the first failure, others may come in that tell more of the cause."""
STOPPED = 130


@dataclass(frozen=True)
class Limits:
    """Seconds, and times, that a job waits."""

    join: float = 300.0
    """Until all nodes have come."""
    node: float = 30.0
    """Without a sign of a node."""
    ending: float = 60.0
    """Until a node has ended its ranks."""
    hang: float | None = None
    """Without a sign of any progress; None: a hang is told, not ended."""
    restarts: int = 0
    """Starts after the first one."""


@dataclass(frozen=True)
class Failure:
    """A rank that has ended badly, or a node that is gone."""

    message: str
    code: int = 1
    rank: int | None = None
    node: int | None = None
    error: str | None = None
    """What the rank said of it."""
    log: str | None = None


@dataclass
class _Member:
    hello: Hello
    seen: float
    done: bool = False
    gone: bool = False
    """No process of the job is left there."""
    lost: bool = False
    ranks: dict[int, Mapping[str, Any]] = field(default_factory=dict)


class Conductor:
    """The course of a job.

    Args:
        nodes, workers: of the job.
        limits: how long it waits.
        send: gives a message to a node.
        say: tells the user something.
        now: a monotonic clock.
        newest: the checkpoint that a restart would go on from, for the message.
        first_log: number of the folder of logs of the first attempt.
    """

    def __init__(
        self,
        nodes: int,
        workers: int,
        limits: Limits,
        send: Callable[[int, Message], None],
        say: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
        newest: Callable[[], str | None] = lambda: None,
        first_log: int = 0,
    ):
        self.first_log = first_log
        self.nodes, self.workers, self.limits = nodes, workers, limits
        self._send, self._say, self._now, self._newest = send, say, now, newest
        self.state = "joining"
        self.attempt = 0
        self.failures: list[Failure] = []
        self.interrupted: str | None = None
        self.ended: Message | None = None
        """The last message, once the job is over."""
        self._members: dict[int, _Member] = {}
        self._since = now()
        self._silent: tuple[int, ...] = ()

    # What comes in.

    def joined(self, hello: Hello) -> None:
        """A node has come while others are waited for. The job starts when all have, or is refused with all that is wrong."""
        if hello.node in self._members:
            other = self._members[hello.node].hello
            text = f"--node-rank {hello.node} was given to two nodes: {other.place} and {hello.place}"
            self._refuse([f"{text}; give each its own, from 0 to {self.nodes - 1}"])
            return
        self._members[hello.node] = _Member(hello, self._now())
        if self.nodes > 1:
            self._say(f"{hello.name} has joined: {len(self._members)} of {self.nodes}")
        if len(self._members) == self.nodes:
            problems = disagreements([self._members[node].hello for node in sorted(self._members)])
            if problems:
                self._refuse(problems)
            else:
                self._start()

    def heard(self, node: int, message: Message) -> None:
        """A node has said something."""
        member = self._members[node]
        member.seen = self._now()
        kind = message["type"]
        if kind == "status":
            member.ranks = {int(rank): record for rank, record in message["ranks"].items()}
        elif kind == "failed" and self.state in ("running", "settling"):
            self._failed(_failure(member.hello, message, self.nodes > 1))
        elif kind == "done":
            member.done = True
            if self.state == "running" and all(m.done for m in self._members.values()) and not self.failures:
                self._finish()
        elif kind == "stopped":
            member.gone = True
        elif kind == "interrupt":
            self._interrupt(member.hello.name, message["by"], bool(message["now"]), bool(message["save"]))

    def lost(self, node: int, why: str) -> None:
        """A node's launcher is gone."""
        member = self._members.get(node)
        if member is None or self.state == "over" or member.lost:
            return
        member.lost = member.gone = True
        step = max((int(record.get("step") or 0) for record in member.ranks.values()), default=0)
        last = f"; its last step was {step}" if step else ""
        failure = Failure(f"{member.hello.place} is lost: {why}{last}", node=node)
        if self.state == "joining":
            self.failures.append(failure)
            self._over(1)
        elif self.state == "running":
            self._failed(failure)

    def tick(self) -> None:
        """Time has passed."""
        now = self._now()
        if self.state == "joining" and now - self._since > self.limits.join:
            missing = [str(node) for node in range(self.nodes) if node not in self._members]
            self.failures.append(
                Failure(
                    f"node {', '.join(missing)} did not come within {self.limits.join:g} s; start msllm launch there with the "
                    f"same options and --node-rank {missing[0]}, and see that it reaches this host's control port"
                )
            )
            self._over(1)
        for node, member in self._members.items():
            if self.state in ("running", "joining") and now - member.seen > self.limits.node:
                why = f"no sign of it for {self.limits.node:g} s; the host is down, or the network between is cut"
                self.lost(node, why)
        if self.state == "running":
            self._look(now)
        elif self.state == "settling" and now - self._since > SETTLE_SECONDS:
            self._stop_all()
        elif self.state == "ending" and (self._all_gone() or now - self._since > self.limits.ending):
            self._after_failure()

    @property
    def lost_nodes(self) -> set[int]:
        """Nodes that will say nothing any more."""
        return {node for node, member in self._members.items() if member.lost}

    def view(self) -> View:
        """Where the ranks are."""
        return view(self._ranks(), self.workers)

    # What is decided.

    def _start(self) -> None:
        for member in self._members.values():
            member.done = member.gone = False
            member.ranks = {}
        self.failures = []
        self._enter("running")
        self._broadcast({"type": "start", "attempt": self.attempt, "logs": self.first_log + self.attempt})

    def _look(self, now: float) -> None:
        """Tell of silent ranks when they change; end the job where it hangs and the user wants that."""
        seen = self.view()
        if seen.silent != self._silent:
            if seen.silent:
                self._say(f"warning: {seen.text}")
            self._silent = seen.silent
        records = self._ranks()
        hang = self.limits.hang
        # Before the first step, MindSpore and HCCL have time-outs of their own, and a large graph compiles for long.
        moving = [record["idle"] for record in records.values() if record["phase"] not in BEFORE_STEPS]
        if hang is not None and len(moving) == self.workers and min(moving) > hang:
            self._failed(Failure(f"no rank has moved for {hang:g} s (--hang-timeout): {seen.text}"))

    def _failed(self, failure: Failure) -> None:
        self.failures.append(failure)
        if self.state == "running":
            self._enter("settling")

    def _stop_all(self) -> None:
        # A failure that is reported late may be the cause of one that came before it.
        cause = self.cause()
        self._enter("ending")
        self._broadcast({"type": "stop", "reason": cause.message})

    def cause(self) -> Failure:
        """The failure to name: the first one that is not of the kind which follows from another."""
        own = [failure for failure in self.failures if failure.rank is not None and not follows_another(failure.error)]
        return (own or self.failures)[0]

    def _after_failure(self) -> None:
        cause = self.cause()
        if self.interrupted:
            # A rank tells of a failure now only where it was asked to save and could not.
            self._over(STOPPED if cause.rank is None else 1)
            return
        may = self.attempt < self.limits.restarts and cause.code != 2
        if not may or any(member.lost for member in self._members.values()):
            if self.limits.restarts and any(member.lost for member in self._members.values()):
                self._say("not started again: a node is gone, and a job needs all of its nodes")
            self._over(2 if cause.code == 2 else 1)
            return
        self.attempt += 1
        self._say(f"error: {cause.message}")
        newest = self._newest()
        self._say(
            f"restart {self.attempt} of {self.limits.restarts}: "
            + (f"going on from {newest}" if newest else "from the beginning, as there is no complete checkpoint yet")
        )
        self._start()

    def _interrupt(self, who: str, by: str, now: bool, save: bool) -> None:
        if self.state == "over":
            return
        again = self.interrupted is not None
        self.interrupted = by
        if again and not now:
            return  # a scheduler sends its signal to all nodes
        if self.state == "running" and not now:
            self._say(f"{by} on {who}: ending all ranks" + (" after their step, with a checkpoint" if save else ""))
            self._broadcast({"type": "interrupt", "save": save})
        elif self.state == "joining":
            self._over(STOPPED)
        elif self.state == "running":
            self.failures.append(Failure(f"stopped by {by}"))
            self._stop_all()

    def _finish(self) -> None:
        self._over(STOPPED if self.interrupted else 0)

    def _refuse(self, problems: Iterable[str]) -> None:
        self._enter("over")
        problems = list(problems)
        self.ended = {"type": "end", "code": 2, "problems": problems, "failure": None, "attempts": 0}
        self._broadcast(self.ended)

    def _over(self, code: int) -> None:
        failure = self.cause() if self.failures and code != STOPPED else None
        self._enter("over")
        self.ended = {
            "type": "end",
            "code": code,
            "problems": [],
            "failure": asdict(failure) if failure else None,
            "attempts": self.attempt + 1,
            "stopped_by": self.interrupted,
        }
        self._broadcast(self.ended)

    def _enter(self, state: str) -> None:
        self.state, self._since = state, self._now()

    def _all_gone(self) -> bool:
        return all(member.gone for member in self._members.values())

    def _ranks(self) -> dict[int, Mapping[str, Any]]:
        return {rank: record for member in self._members.values() for rank, record in member.ranks.items()}

    def _broadcast(self, message: Message) -> None:
        for node, member in self._members.items():
            if not member.lost:
                self._send(node, message)


def _failure(hello: Hello, message: Message, several: bool) -> Failure:
    """A rank's end, in words; with its node where there are several."""
    rank, code, error, log = message["rank"], message["code"], message["error"], message["log"]
    who = "MindSpore's scheduler" if rank < 0 else f"rank {rank}"
    text = f"{who} on {hello.place} {message['how']}" if several else f"{who} {message['how']}"
    text += f": {error}" if error else ""
    return Failure(f"{text} (log: {log})", code, rank if rank >= 0 else None, hello.node, error, log)
