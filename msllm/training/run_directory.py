"""The folder of a run: what is in it, who may write it, and how it is taken up again.

config.yaml      the resolved configuration      metrics.jsonl   one line a step, one an evaluation
checkpoints/     full states                     tensorboard/    the same curves
logs/            rank_<n>.log                    tokenizer/      the tokenizer of the data
strategy/        MindSpore's strategy files, of ranks that hold slices
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import IO

from msllm.checkpoint.state import set_aside_after
from msllm.config.load import write_resolved
from msllm.config.sections import RunConfig
from msllm.errors import InputError, Problem
from msllm.files import write_atomic


class RunDirectory:
    """Paths of a run's folder and the lock that keeps a second run out of it."""

    def __init__(self, path: Path):
        self.path = path
        self.config = path / "config.yaml"
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / "tensorboard"
        self.logs = path / "logs"
        self.tokenizer = path / "tokenizer"
        self.strategies = path / "strategy"
        self._lock: IO[str] | None = None

    def create(self) -> None:
        """Make the folder; InputError where that is not possible."""
        try:
            self.logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                Problem(f"cannot be written: {error.strerror}; choose another --output", self.path)
            ) from None

    def acquire(self) -> None:
        """Keep other processes out until this one ends, however it ends.

        Raises:
            InputError: another process writes this run.
        """
        lock = open(self.path / ".lock", "a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            owner = lock.read().strip() or "unknown"
            lock.close()
            raise InputError(
                Problem(f"process {owner} is writing this run; wait for it or choose another --output", self.path)
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def begin(self, config: RunConfig, tokenizer: Path, step: int) -> None:
        """Make the folder what it is after `step`: nothing of later steps, the configuration, a copy of the tokenizer.

        With the tokenizer the run's models can read and write text on their own.
        """
        self._forget_after(step)
        set_aside_after(self.checkpoints, step)
        write_resolved(config, self.config)
        self.tokenizer.mkdir(exist_ok=True)
        write_atomic(self.tokenizer / tokenizer.name, tokenizer.read_bytes())

    def tokenizer_file(self) -> Path | None:
        """The copy that `begin` made."""
        return next((file for file in sorted(self.tokenizer.glob("*")) if not file.name.startswith(".")), None)

    def has_run(self) -> bool:
        """Whether steps were made here."""
        return self.metrics.exists() or any(self.checkpoints.glob("step_*"))

    def _forget_after(self, step: int) -> None:
        """Cut metrics.jsonl after `step`, so that a resumed run leaves the file that an uninterrupted one would."""
        if not self.metrics.exists():
            return
        kept = []
        for line in self.metrics.read_text(errors="replace").splitlines():
            try:
                if json.loads(line)["step"] <= step:
                    kept.append(line + "\n")
            except (ValueError, KeyError, TypeError):
                break  # the line that a kill cut short, or worse: what follows it was not made by the kept steps
        write_atomic(self.metrics, "".join(kept))
