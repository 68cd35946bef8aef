"""Starts one launcher on every host of a list, over ssh, and stays with them to the end."""

from __future__ import annotations

import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import IO

from msllm.errors import RunError
from msllm.launch import variables
from msllm.launch.network import is_local
from msllm.launch.options import Options
from msllm.launch.preflight import msllm_command
from rank_tables.hosts import Host

GRACE_SECONDS = 10.0
"""After a node's launcher has ended, node 0 says by then what that means for the job."""
TAIL_LINES = 20
ENDS = (0, 1, 2, 130)
"""Exit codes of a launcher that has said what there is to say."""


@dataclass(frozen=True)
class Remote:
    """What is run for one node."""

    host: Host
    command: tuple[str, ...]
    """ssh with its arguments, or sh for this host."""
    script: str
    """What a shell there is given."""


def forwarded(environment: Mapping[str, str]) -> dict[str, str]:
    """What the nodes get of this environment: the recipe, and the paths that set_env.sh has set here."""
    found = {}
    for name, value in sorted(environment.items()):
        recipe = name.startswith(variables.PREFIXES) and name not in variables.OF_A_RANK
        if recipe or name in variables.OF_THE_SHELL:
            found[name] = value
    return found


def remotes(hosts: Sequence[Host], options: Options, folder: str, environment: Mapping[str, str]) -> list[Remote]:
    """The command of every node.

    Args:
        hosts: in the order of node_rank.
        options: with --ssh, in which {host} stands for the host; without it the host is its last word.
        folder: working folder on every node.
        environment: of this process.
    """
    train = [*options.train, *(("--", *options.more) if options.more else ())]
    settings = [f"{name}={value}" for name, value in forwarded(environment).items()]
    found = []
    for node_rank, host in enumerate(hosts):
        own = options.launch_arguments(len(hosts), node_rank, hosts[0].server_id)
        words = ["exec", "env", *settings, *msllm_command(), "launch", *own, *train]
        script = f"cd {shlex.quote(folder)} && {shlex.join(words)}"
        if is_local(host.server_id):
            command: list[str] = ["sh", "-c"]
        elif "{host}" in options.ssh:
            command = [word.replace("{host}", host.name) for word in shlex.split(options.ssh)]
        else:
            command = [*shlex.split(options.ssh), host.name]
        found.append(Remote(host, (*command, script), script))
    return found


class _Connection:
    """One running node."""

    def __init__(self, remote: Remote, node_rank: int, line: Callable[[str], None]):
        self.remote, self.node_rank = remote, node_rank
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._line = line
        self.output = b""
        self.popen = subprocess.Popen(
            list(remote.command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches this launcher alone, which passes it on
        )
        self._threads = [
            threading.Thread(target=self._errors, args=(self.popen.stderr,), daemon=True),
            threading.Thread(target=self._result, args=(self.popen.stdout,), daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def _errors(self, stream: IO[bytes]) -> None:
        for raw in iter(stream.readline, b""):
            text = raw.decode(errors="replace").rstrip("\n")
            self.tail.append(text)
            if self.node_rank == 0:  # which tells of all nodes
                self._line(text)

    def _result(self, stream: IO[bytes]) -> None:
        self.output = stream.read()

    def tell(self, text: str | None) -> None:
        """Say something to the node's launcher; None: nothing any more."""
        assert self.popen.stdin is not None
        try:
            if text is None:
                self.popen.stdin.close()
            else:
                self.popen.stdin.write(text.encode())
                self.popen.stdin.flush()
        except (OSError, ValueError):
            return

    def finish(self) -> None:
        """Read what is left."""
        for thread in self._threads:
            thread.join(2.0)

    @property
    def name(self) -> str:
        """For messages."""
        return f"node {self.node_rank} ({self.remote.host.name})"


def run(started: Sequence[Remote], line: Callable[[str], None]) -> tuple[int, bytes]:
    """Run all nodes to the end: exit code of the job, and what node 0 has printed on stdout.

    Ctrl-C is passed on to node 0, which ends all; a second one too.

    Raises:
        RunError: a node's connection ended, and node 0 had nothing to say of it; with the node's last lines.
    """
    asked = 0

    def on_signal(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1

    before = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    nodes = [_Connection(remote, node_rank, line) for node_rank, remote in enumerate(started)]
    passed_on, ended_at = 0, None
    first: _Connection | None = None
    try:
        while any(node.popen.poll() is None for node in nodes):
            while passed_on < asked:
                passed_on += 1
                nodes[0].tell("stop\n")
            over = [node for node in nodes if node.popen.poll() not in (None, 0)]
            if nodes[0].popen.poll() is not None and ended_at is None:
                over = over or [nodes[0]]
            if over and ended_at is None:
                first, ended_at = over[0], time.monotonic()
            if ended_at is not None and time.monotonic() - ended_at > GRACE_SECONDS:
                break
            time.sleep(0.1)
    finally:
        silent = nodes[0].popen.poll() is None
        _end(nodes)
        for number, handler in before.items():
            signal.signal(number, handler)
    code = nodes[0].popen.returncode
    if first is None or not (silent or (first is nodes[0] and code not in ENDS)):
        return code, nodes[0].output
    said = "".join(f"\n  {text}" for text in first.tail) or " (nothing)"
    raise RunError(
        f"{first.name} ended with exit code {first.popen.returncode}, and node 0 did not say why; its last lines:{said}"
    )


def _end(nodes: Sequence[_Connection]) -> None:
    """Let go of all nodes: a launcher whose stdin ends takes its ranks along."""
    for node in nodes:
        node.tell(None)
    limit = time.monotonic() + GRACE_SECONDS
    while any(node.popen.poll() is None for node in nodes) and time.monotonic() < limit:
        time.sleep(0.1)
    for node in nodes:
        if node.popen.poll() is None:
            node.popen.kill()
        node.popen.wait()
        node.finish()
