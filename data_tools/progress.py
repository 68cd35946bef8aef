"""How a long job tells how far it is: a bar on a terminal, a plain line now and then elsewhere. All on stderr."""

from __future__ import annotations

import sys
import time
from types import TracebackType

PLAIN_LINE_SECONDS = 10.0


class Progress:
    """Bytes done of a known total, with rate and time left; use it as a context manager.

    Args:
        what: a word for the work, as "convert".
        total: bytes of the whole job.
        done: bytes that an earlier run has done.
        quiet: show nothing.
    """

    def __init__(self, what: str, total: int, done: int = 0, quiet: bool = False):
        self._what = what
        self._total = max(1, total)
        self._done = self._before = done
        self._tokens = 0
        self._quiet = quiet
        self._start = time.monotonic()
        self._next = self._start + PLAIN_LINE_SECONDS
        self._bar = None if quiet or not sys.stderr.isatty() else _bar(what, self._total, done)

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    @property
    def seconds(self) -> float:
        """Time since the start."""
        return time.monotonic() - self._start

    def advance(self, count: int, tokens: int = 0) -> None:
        """So many more bytes are done, and tokens made."""
        self._done += count
        self._tokens += tokens
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=self._done, note=self._note())
        elif not self._quiet and time.monotonic() >= self._next:
            self._next = time.monotonic() + PLAIN_LINE_SECONDS
            self.say(self._line())

    def say(self, text: str) -> None:
        """Print a line, above the bar where there is one."""
        if self._quiet:
            return
        if self._bar:
            self._bar.console.print(text, highlight=False, markup=False)
        else:
            print(text, file=sys.stderr, flush=True)

    def _note(self) -> str:
        return f"{self._tokens / max(self.seconds, 1e-9) / 1e6:.2f} Mtok/s" if self._tokens else ""

    def _line(self) -> str:
        rate = (self._done - self._before) / max(self.seconds, 1e-9)
        left = (self._total - self._done) / rate if rate else float("inf")
        parts = [
            f"{self._what}: {100 * self._done / self._total:.1f}%",
            f"{rate / 1e6:.1f} MB/s",
            self._note(),
            f"{_duration(left)} left",
        ]
        return ", ".join(part for part in parts if part)


def _bar(what: str, total: int, done: int):
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TextColumn("{task.fields[note]}"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    bar.add_task(what, total=total, completed=done, note="")
    return bar


def _duration(seconds: float) -> str:
    if seconds == float("inf"):
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
