"""What a person sees: a live line on a terminal, plain lines elsewhere, and a log file for each rank."""

from __future__ import annotations

import contextlib
import logging
import sys
import time
from pathlib import Path

from msllm.parallel.world import World
from msllm.training.metrics import StepMetrics, duration


class RunConsole:
    """Messages and progress of one rank. Ranks tag their lines once there are several."""

    def __init__(self, world: World, log_file: Path, train_steps: int):
        self.train_steps = train_steps
        self._started: float | None = None
        self._first_step = 0
        self._logger = logging.getLogger(f"msllm.rank_{world.rank}")
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False
        tag = f"[rank {world.rank}] " if world.size > 1 else ""
        for handler in list(self._logger.handlers):
            self._logger.removeHandler(handler)
        self._to_file = _LogFile(log_file, encoding="utf-8")
        self._to_file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        self._logger.addHandler(self._to_file)
        self._to_console = logging.StreamHandler(sys.stderr)  # stdout is for what a program reads
        self._to_console.setFormatter(logging.Formatter(f"{tag}%(message)s"))
        self._logger.addHandler(self._to_console)
        self._terminal = world.is_main and sys.stderr.isatty()
        self._live: _LiveLine | None = None

    def start(self) -> None:
        """Begin the live line where there is a terminal; `close` must follow, or the terminal stays without a cursor."""
        if self._terminal:
            self._logger.removeHandler(self._to_console)
            self._live = _LiveLine(self.train_steps)

    def info(self, text: str) -> None:
        """A message."""
        self._logger.info(text)
        if self._live:
            self._live.print(text)

    def warning(self, text: str) -> None:
        """Something that the user should look at."""
        self._logger.warning("warning: %s", text)
        if self._live:
            self._live.print(f"warning: {text}")

    def failure(self, text: str) -> None:
        """Why the run ends, for the log file alone: the command says it on the console."""
        self._to_file.handle(logging.LogRecord(self._logger.name, logging.ERROR, "", 0, text, None, None))

    def step(self, metrics: StepMetrics, show: bool) -> None:
        """Progress after a step; `show` also makes a line of it."""
        if self._started is None:  # the first step holds the compilation, which would spoil the ETA
            self._started, self._first_step = time.monotonic(), metrics.step
        line = self._line(metrics)
        if show:
            self._logger.info(line)
        if self._live:
            self._live.update(metrics.step, line)

    def _line(self, metrics: StepMetrics) -> str:
        done = metrics.step - self._first_step
        elapsed = time.monotonic() - (self._started or time.monotonic())
        left = elapsed / done * (self.train_steps - metrics.step) if done else float("inf")
        waited = 100 * metrics.data_seconds / metrics.step_seconds if metrics.step_seconds else 0.0
        scale = f" scale {metrics.loss_scale:g}" if metrics.loss_scale != 1 else ""
        overflow = " OVERFLOW, no update" if metrics.overflow else ""
        return (
            f"step {metrics.step}/{self.train_steps} loss {metrics.loss:.4f} lr {metrics.lr:.2e} "
            f"grad_norm {metrics.grad_norm:.3f}{scale}{overflow} tokens/s {metrics.tokens_per_second:,.0f} "
            f"data {waited:.1f}% eta {duration(left)}"
        )

    def close(self) -> None:
        """End the live line and the log file."""
        if self._live:
            self._live.close()
        for handler in list(self._logger.handlers):
            self._logger.removeHandler(handler)
            with contextlib.suppress(OSError):  # lines that a full disk does not take
                handler.close()


class _LogFile(logging.FileHandler):
    """A log that a full disk does not fill the console for; what must not be lost stops the run elsewhere."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Leave the line out."""


class _LiveLine:
    """One line at the bottom of a terminal, by rich."""

    def __init__(self, train_steps: int):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False), BarColumn(), console=Console(stderr=True)
        )
        self._task = self._progress.add_task("compiling the first step", total=train_steps)
        self._progress.start()

    def print(self, text: str) -> None:
        """A line above the live one."""
        self._progress.console.print(text, markup=False, highlight=False)

    def update(self, step: int, line: str) -> None:
        """Move on."""
        self._progress.update(self._task, completed=step, description=line)

    def close(self) -> None:
        """Leave the last state on the screen."""
        self._progress.stop()
