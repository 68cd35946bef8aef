"""What the launcher says: lines on stderr, and on a terminal one live line below them."""

from __future__ import annotations

import sys
import threading
import time

from msllm.launch.view import View

STATUS_SECONDS = 30.0
"""Between two lines about the state of the ranks where there is no terminal."""


class Screen:
    """Lines from several threads; `prefix` tells nodes apart."""

    def __init__(self, prefix: str = ""):
        self._prefix = prefix
        self._lock = threading.Lock()
        self._live = sys.stderr.isatty()
        self._status = ""
        self._told = time.monotonic()
        self._last = ""

    def say(self, text: str) -> None:
        """A line of the launcher's own."""
        self.line(f"{self._prefix}{text}")

    def line(self, text: str) -> None:
        """A line as it is."""
        with self._lock:
            self._erase()
            sys.stderr.write(text + "\n")
            self._draw()

    def status(self, seen: View) -> None:
        """The state of the ranks: always on a terminal, from time to time elsewhere, and not twice the same."""
        if self._live:
            with self._lock:
                self._erase()
                self._status = seen.text
                self._draw()
        elif time.monotonic() - self._told > STATUS_SECONDS and seen.text != self._last:
            self._told, self._last = time.monotonic(), seen.text
            self.say(seen.text)

    def end(self) -> None:
        """No live line any more."""
        with self._lock:
            self._erase()
            self._status = ""
            sys.stderr.flush()

    def _erase(self) -> None:
        if self._live and self._status:
            sys.stderr.write("\r\x1b[2K")

    def _draw(self) -> None:
        if self._live and self._status:
            import shutil

            sys.stderr.write(self._status[: shutil.get_terminal_size().columns - 1])
        sys.stderr.flush()
