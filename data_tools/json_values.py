"""The values of a `.json` file one by one, whatever its size: an array, one value, or values that follow one another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_NEXT_OBJECT = re.compile(r"\n(?=\{)")
_DECODE = json.JSONDecoder().raw_decode
_LONGEST_LITERAL = 16
"""A failure so near to the end of what was read may be a literal or an escape that goes on."""

_NUMBER_TAIL = 2
"""What may stand behind a number that goes on: `.`, or `e-`."""


class BrokenValue(ValueError):
    """Stands for a value that cannot be read; its text says why."""


class _Text:
    """What was read and not yet used, with the number of its first line."""

    def __init__(self, parts: Iterator[str]):
        self._parts = parts
        self.text = ""
        self.place = 0
        self.line = 1
        self.ended = False

    def more(self) -> None:
        """Read at least as much as there is, so that a long value is not tried again and again."""
        wanted = max(1, len(self.text) - self.place)
        read = [self.text[self.place :]]
        while wanted > 0 and not self.ended:
            part = next(self._parts, None)
            self.ended = part is None
            read.append(part or "")
            wanted -= len(part or "")
        self.text, self.place = "".join(read), 0

    def move(self, place: int) -> None:
        self.line += self.text.count("\n", self.place, place)
        self.place = place

    def peek(self) -> str:
        """Next character that is no white space, "" at the end."""
        while True:
            match = _SPACE.match(self.text, self.place)
            self.move(match.end() if match else self.place)
            if self.place < len(self.text) or self.ended:
                return self.text[self.place : self.place + 1]
            self.more()


def json_values(parts: Iterator[str]) -> Iterator[tuple[Any, int]]:
    """Yield (value, line): the elements of an array at the top, or else every value at the top.

    What cannot be read is a BrokenValue. After one in an array, nothing follows; elsewhere, the next line that begins
    with `{` does.
    """
    text = _Text(parts)
    if text.peek() != "[":
        while text.peek():
            line = text.line
            value = _value(text)
            yield value, line
            if isinstance(value, BrokenValue):
                _skip_to_object(text)
        return
    text.move(text.place + 1)
    if text.peek() == "]":
        text.move(text.place + 1)
    else:
        while True:
            text.peek()
            line = text.line
            value = _value(text)
            yield value, line
            if isinstance(value, BrokenValue):
                return
            separator = text.peek()
            if separator not in (",", "]") or not separator:
                yield (
                    BrokenValue("the array is cut" if not separator else "expected , or ] after an element"),
                    text.line,
                )
                return
            text.move(text.place + 1)
            if separator == "]":
                break
    if text.peek():
        yield BrokenValue("something follows the array"), text.line


def _value(text: _Text) -> Any:
    """The value at the current place, which is behind it afterwards."""
    while True:
        try:
            value, end = _DECODE(text.text, text.place)
        except json.JSONDecodeError as error:
            cut = error.msg.startswith("Unterminated string") or error.pos >= len(text.text) - _LONGEST_LITERAL
            if cut and not text.ended:
                text.more()
                continue
            return BrokenValue(f"{error.msg}; what follows in it is lost")
        except RecursionError:
            return BrokenValue("too many levels")
        if end >= len(text.text) - _NUMBER_TAIL and not text.ended:
            text.more()
            continue
        text.move(end)
        return value


def _skip_to_object(text: _Text) -> None:
    """Go to the next line that begins with {, or to the end."""
    while True:
        match = _NEXT_OBJECT.search(text.text, text.place)
        if match:
            text.move(match.end())
            return
        text.move(max(text.place, len(text.text) - 1))
        if text.ended:
            text.move(len(text.text))
            return
        text.more()
