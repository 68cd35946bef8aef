"""Messages between the launchers of a job: one JSON object a line over TCP, nothing that is executed."""

from __future__ import annotations

import json
import select
import socket
from typing import Any

MAX_BYTES = 16 << 20
"""A longer line comes from something that is no launcher."""

Message = dict[str, Any]


class Closed(Exception):
    """The other side is gone, or is no launcher."""


class Channel:
    """One connection."""

    def __init__(self, connection: socket.socket):
        self.socket = connection
        self.socket.settimeout(5.0)  # for sending: who does not read for so long is lost
        self._received = b""

    def fileno(self) -> int:
        """For select."""
        return self.socket.fileno()

    def send(self, message: Message) -> None:
        """Raises Closed."""
        try:
            self.socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Closed(str(error)) from None

    def receive(self, seconds: float = 0.0) -> list[Message]:
        """What has come, waiting up to `seconds` for it. Raises Closed once the other side is gone and all is read."""
        if not select.select([self.socket], [], [], seconds)[0]:
            return []
        try:
            data = self.socket.recv(1 << 16)
        except OSError as error:
            raise Closed(str(error)) from None
        if not data:
            raise Closed("the connection was closed")
        self._received += data
        if len(self._received) > MAX_BYTES:
            raise Closed("too long a message")
        *lines, self._received = self._received.split(b"\n")
        try:
            messages = [json.loads(line) for line in lines]
        except ValueError:
            raise Closed("this is no launcher") from None
        if not all(isinstance(message, dict) and "type" in message for message in messages):
            raise Closed("this is no launcher")
        return messages

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
