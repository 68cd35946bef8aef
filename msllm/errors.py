"""The two ways in which a command ends badly, and the exit code of each.

`InputError` is the user's to mend: a wrong value, a missing file. It carries every problem found, so that a user mends
them in one go, and it never shows a traceback. `RunError` is a run that failed although its input was right.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Problem:
    """One mistake: what is wrong and what to do (`message`), and where it stands."""

    message: str
    file: str | Path | None = None
    line: int | None = None

    def __str__(self) -> str:
        if self.file is None:
            return self.message
        where = f"{self.file}:{self.line}" if self.line else str(self.file)
        return f"{where}: {self.message}"

    def to_dict(self) -> dict[str, str | int | None]:
        """For JSON."""
        return {"message": self.message, "file": None if self.file is None else str(self.file), "line": self.line}


class MsllmError(Exception):
    """What every error of ours is; `exit_code` is what the process ends with."""

    exit_code = 1


class InputError(MsllmError):
    """The input is wrong. `problems` holds all that was found, in reading order."""

    exit_code = 2

    def __init__(self, problems: str | Problem | Iterable[Problem | str]):
        if isinstance(problems, (str, Problem)):
            problems = [problems]
        self.problems = tuple(p if isinstance(p, Problem) else Problem(p) for p in problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class RunError(MsllmError):
    """The run failed: NaN in the loss, a full disk, a damaged file found by `verify`."""

    exit_code = 1
