"""How a long job tells how far it is: a bar on a terminal, a plain line now and then elsewhere. All on stderr."""

from __future__ import annotations

import sys
import time
from typing import Any

PLAIN_LINE_SECONDS = 10.0


class Progress:
    """Work done of a known total, with rate and time left.

    Args:
        what: a word for the work, as "convert".
        total: size of the whole job, in `unit`.
        done: what an earlier run has done.
        quiet: show nothing.
        unit: "bytes", or the name of what is counted.
    """

    def __init__(self, what: str, total: int, done: int = 0, quiet: bool = False, unit: str = "bytes"):
        self._what = what
        self._unit = unit
        self._total = max(1, total)
        self._done = self._before = done
        self._tokens = 0
        self._quiet = quiet
        self._start = time.monotonic()
        self._next = self._start + PLAIN_LINE_SECONDS
        self._bar = None if quiet or not sys.stderr.isatty() else _bar(what, self._total, done, unit)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the bar as it is."""
        if self._bar:
            self._bar.stop()
            self._bar = None

    def advance(self, count: int, tokens: int = 0) -> None:
        """So much more is done, and so many tokens made."""
        self._tokens += tokens
        self.reach(self._done + count)

    def reach(self, done: int) -> None:
        """So much is done by now."""
        self._done = done
        if self._bar:
            self._bar.update(self._bar.task_ids[0], completed=done, note=self._note())
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

    @property
    def _seconds(self) -> float:
        return max(time.monotonic() - self._start, 1e-9)

    def _note(self) -> str:
        return f"{self._tokens / self._seconds / 1e6:.2f} Mtok/s" if self._tokens else ""

    def _line(self) -> str:
        rate = (self._done - self._before) / self._seconds
        speed = f"{rate / 1e6:.1f} MB/s" if self._unit == "bytes" else f"{rate:.0f} {self._unit}/s"
        left = _duration((self._total - self._done) / rate) if rate else "?"
        parts = [f"{self._what}: {100 * self._done / self._total:.1f}%", speed, self._note(), f"{left} left"]
        return ", ".join(part for part in parts if part)


def _bar(what: str, total: int, done: int, unit: str) -> Any:
    from rich import progress
    from rich.console import Console

    size = (
        [progress.DownloadColumn(), progress.TransferSpeedColumn()]
        if unit == "bytes"
        else [
            progress.MofNCompleteColumn(),
            progress.TextColumn(unit),
        ]
    )
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        *size,
        progress.TextColumn("{task.fields[note]}"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    bar.add_task(what, total=total, completed=done, note="")
    bar.start()
    return bar


def _duration(seconds: float) -> str:
    minutes, rest = divmod(max(0, int(seconds)), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
