"""The conductor's ears and mouth: a thread of node 0's launcher that every node's launcher is connected to."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from msllm.launch.agreement import Hello
from msllm.launch.channel import Channel, Closed, Message
from msllm.launch.conductor import Conductor, Limits
from msllm.launch.view import View

TICK = 0.1
BEAT_SECONDS = 1.0
FAREWELL_SECONDS = 5.0
"""Within which nodes take leave after the end."""


class Coordinator:
    """Serves the nodes of a job until it is over; everything happens on its own thread.

    Args:
        listener: socket that listens on the control port.
        nodes, workers, limits, newest, first_log, say: as for Conductor.
        show: is given the state of the ranks every second.
    """

    def __init__(
        self,
        listener: socket.socket,
        nodes: int,
        workers: int,
        limits: Limits,
        say: Callable[[str], None],
        show: Callable[[View], None],
        newest: Callable[[], str | None],
        first_log: int = 0,
    ):
        self._listener, self._show, self._say = listener, show, say
        self._listener.setblocking(False)
        self._conductor = Conductor(nodes, workers, limits, self._send, say, newest=newest, first_log=first_log)
        self._channels: dict[int, Channel] = {}
        self._strangers: list[Channel] = []
        """Connections that have not said which node they are."""
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def join(self) -> None:
        """Wait until the nodes know how the job ended."""
        self._thread.join(FAREWELL_SECONDS + 2.0)

    def _serve(self) -> None:
        beat = time.monotonic()
        while self._conductor.ended is None:
            self._listen(TICK)
            self._conductor.tick()
            if time.monotonic() - beat > BEAT_SECONDS:
                beat = time.monotonic()
                for node in list(self._channels):
                    self._send(node, {"type": "beat"})
                if self._conductor.state == "running":
                    self._show(self._conductor.view())
        limit = time.monotonic() + FAREWELL_SECONDS
        while set(self._channels) - self._conductor.lost_nodes and time.monotonic() < limit:
            self._listen(TICK)
        self._listener.close()
        for channel in [*self._channels.values(), *self._strangers]:
            channel.close()

    def _listen(self, seconds: float) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            for channel in [*self._channels.values(), *self._strangers]:
                selector.register(channel, selectors.EVENT_READ)
            ready = {key.fileobj for key, _ in selector.select(seconds)}
        if self._listener in ready:
            self._accept()
        for channel in [channel for channel in self._strangers if channel in ready]:
            self._meet(channel)
        for node, channel in [(n, c) for n, c in self._channels.items() if c in ready]:
            try:
                for message in channel.receive():
                    self._conductor.heard(node, message)
            except (Closed, KeyError, TypeError, ValueError) as error:
                self._lose(node, f"its launcher ended or was killed ({error})")

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        self._strangers.append(Channel(connection))

    def _meet(self, channel: Channel) -> None:
        """A connection says which node it is; anything else is hung up on."""
        try:
            messages = channel.receive()
            if not messages:
                return
            self._strangers.remove(channel)
            hello = Hello.from_message(messages[0], str(channel.socket.getpeername()[0]))
        except (Closed, OSError, KeyError, TypeError, ValueError):
            if channel in self._strangers:
                self._strangers.remove(channel)
            channel.close()
            return
        if self._conductor.state != "joining":
            self._turn_away(
                channel, f"the job has all its {self._conductor.nodes} nodes already, and {hello.place} is none of them"
            )
            return
        second = hello.node in self._channels
        self._channels.setdefault(hello.node, channel)
        self._conductor.joined(hello)
        if second and self._conductor.ended is not None:
            self._turn_away(channel, *self._conductor.ended["problems"])

    def _turn_away(self, channel: Channel, *problems: str) -> None:
        with suppress(Closed):
            channel.send({"type": "end", "code": 2, "problems": list(problems), "failure": None})
        channel.close()

    def _send(self, node: int, message: Message) -> None:
        channel = self._channels.get(node)
        if channel is None:
            return
        try:
            channel.send(message)
        except Closed as error:
            self._lose(node, f"its launcher does not take messages ({error})")

    def _lose(self, node: int, why: str) -> None:
        channel = self._channels.pop(node, None)
        if channel is not None:
            channel.close()
            self._conductor.lost(node, why)
