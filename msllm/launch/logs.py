"""What a rank prints: kept in a file that rotates, and searched for what tells of an error."""

from __future__ import annotations

import os
import re
from collections import deque
from pathlib import Path

KEPT_FILES = 3
"""Rotated files of a rank beside the one that is written."""
TAIL_LINES = 200

_FRAMEWORK = re.compile(r"\[(ERROR|CRITICAL)\] (\w+)\(")
_EXCEPTION = re.compile(r"^(?:\[rank \d+\] )?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)): ?(.*)")
_OURS = re.compile(r"^(?:\[rank \d+\] )?error: (.*)")
_QUIET = re.compile(r"^\[(?:WARNING|INFO|DEBUG|ERROR)\] \w+\(\d+,")
_RANK_TAG = re.compile(r"^\[rank \d+\] ")
_CODE = re.compile(r"\b(E[0-9A-Z]{1,2}[0-9]{4})\b")
FOLLOWING = (
    "heartbeat",
    "broken pipe",
    "connection reset",
    "connection refused",
    "disconnect",
    "timed out",
    "timeout",
    "time out",
    "allreduce",
    "all_reduce",
    "allgather",
    "collective",
    "ei0002",
    "ei0006",
    "scheduler",
)
"""Words of errors that a rank has when another one is gone."""


class RotatingLog:
    """worker_3.log, and worker_3.log.1 to .3 with what came before once it has `limit` bytes; .1 is the newest."""

    def __init__(self, path: Path, limit: int):
        self.path, self.limit = path, limit
        self._file = open(path, "ab", buffering=0)
        self._size = self._file.tell()

    def write(self, data: bytes) -> None:
        """Append; rotate between lines. What a full disk does not take is left out: a rank must not wait for its log."""
        try:
            if self._size and self._size + len(data) > self.limit:
                self._rotate()
            self._file.write(data)
            self._size += len(data)
        except (OSError, ValueError):
            return

    def _rotate(self) -> None:
        self._file.close()
        for number in range(KEPT_FILES, 0, -1):
            older = self.path if number == 1 else self.numbered(number - 1)
            if older.exists():
                os.replace(older, self.numbered(number))
        self._file = open(self.path, "ab", buffering=0)
        self._size = 0

    def numbered(self, number: int) -> Path:
        """The file that was rotated away so many times."""
        return self.path.with_name(f"{self.path.name}.{number}")

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Tail:
    """The last lines of a rank and its first sign of an error."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=TAIL_LINES)
        self.first_error: str | None = None

    def add(self, line: str) -> None:
        """A line that the rank has printed."""
        self.lines.append(line)
        if self.first_error is None and (_OURS.match(line) or line.startswith("Traceback (most recent call last)")):
            self.first_error = line

    def error(self) -> str | None:
        """What the rank died of, as far as its lines tell: our own message, else the exception, else the framework's error."""
        lines = list(self.lines)
        ours = [match[1] for match in map(_OURS.match, lines) if match]
        if ours:
            return _with_count(ours)
        raised = [match for match in map(_EXCEPTION.match, lines) if match]
        if raised:
            text = f"{raised[-1][1]}: {raised[-1][2]}".strip().removesuffix(":")
            return f"{text}{self._code(text)}"
        framework = [line for line in lines if _FRAMEWORK.match(line)]
        return framework[0] if framework else None

    def _code(self, text: str) -> str:
        """The error code of CANN that stands elsewhere in the lines."""
        found = [match[1] for match in map(_CODE.search, self.lines) if match]
        return f" [{found[0]}]" if found and found[0] not in text else ""


def _with_count(messages: list[str]) -> str:
    return messages[0] if len(messages) == 1 else f"{messages[0]} (and {len(messages) - 1} more)"


def follows_another(error: str | None) -> bool:
    """Whether an error is what a rank has when another one is gone, so that the other one is to be named."""
    return error is not None and any(word in error.lower() for word in FOLLOWING)


def for_console(line: str, rank: int, tagged: bool) -> str | None:
    """How a rank's line is shown; None: in its log only, as MindSpore's own messages, which come by the hundred."""
    if _QUIET.match(line):
        return None
    return line if not tagged or _RANK_TAG.match(line) else f"[rank {rank}] {line}"
