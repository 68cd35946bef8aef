"""JSON with the line and column of every value: what `json` forgets, and what a fault in a table is named by."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

MAX_DEPTH = 100
_SPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"(-?(?:0|[1-9][0-9]*))(\.[0-9]+)?([eE][-+]?[0-9]+)?")
_PLAIN = re.compile(r'[^"\\\x00-\x1f]*')
_HEX = re.compile(r"[0-9a-fA-F]{4}")
_WORD = re.compile(r"[A-Za-z_]+|.", re.DOTALL)
_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CONSTANTS = {"true": True, "false": False, "null": None}


class JsonError(ValueError):
    """A text that is not JSON: what is wrong, on which line and in which column (both from 1)."""

    def __init__(self, message: str, line: int, column: int):
        super().__init__(message)
        self.line = line
        self.column = column


@dataclass(frozen=True)
class Node:
    """One value: `value` is text, number, bool, None, a list of nodes, or a dict of key -> node."""

    value: Any
    line: int
    """Where the value starts, from 1."""
    column: int
    key_lines: dict[str, int] = field(default_factory=dict)
    """Of a dict: key -> the line of the key."""
    repeated: tuple[tuple[str, int], ...] = ()
    """Of a dict: keys given again, with their lines; the last one counts, as with `json`."""

    def plain(self) -> Any:
        """The value as `json.loads` gives it."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value


def read_json(text: str) -> Node:
    """The value of a JSON text, with places; JsonError where it is not JSON (NaN and Infinity are not)."""
    reader = _Reader(text)
    node, end = reader.value(reader.skip(0), 0)
    end = reader.skip(end)
    if end < len(text):
        raise reader.error(f"the value ends before this: {reader.show(end)} is too much", end)
    return node


class _Reader:
    """Reads by recursive descent. Each method takes an offset and gives what it read and the offset behind it."""

    def __init__(self, text: str):
        self.text = text
        self.line_starts = [0, *(match.end() for match in re.finditer("\n", text))]

    def place(self, at: int) -> tuple[int, int]:
        """Line and column of an offset, both from 1."""
        line = bisect_right(self.line_starts, at)
        return line, at - self.line_starts[line - 1] + 1

    def error(self, message: str, at: int) -> JsonError:
        return JsonError(message, *self.place(at))

    def show(self, at: int) -> str:
        if at >= len(self.text):
            return "the end of the file"
        match = _WORD.match(self.text, at)
        return repr(match.group()[:20] if match else self.text[at])

    def skip(self, at: int) -> int:
        match = _SPACE.match(self.text, at)
        return match.end() if match else at

    def node(self, value: Any, at: int, **more: Any) -> Node:
        return Node(value, *self.place(at), **more)

    def value(self, at: int, depth: int) -> tuple[Node, int]:
        if depth > MAX_DEPTH:
            raise self.error(f"nested more than {MAX_DEPTH} deep", at)
        start = self.text[at : at + 1]
        if start == "{":
            return self.mapping(at, depth)
        if start == "[":
            return self.sequence(at, depth)
        if start == '"':
            text, end = self.string(at)
            return self.node(text, at), end
        number = _NUMBER.match(self.text, at)
        if number:
            return self.node(self.number(number, at), at), number.end()
        for word, constant in _CONSTANTS.items():
            if self.text.startswith(word, at):
                return self.node(constant, at), at + len(word)
        raise self.error(self.not_a_value(at), at)

    def not_a_value(self, at: int) -> str:
        start = self.text[at : at + 1]
        if start in ("]", "}"):
            return f"a value is missing before {start!r}"
        if start in ("'", "\u201c", "\u201d"):
            return f'text stands in double quotes ("), not in {start!r}'
        if start == "#" or self.text.startswith(("//", "/*"), at):
            return "JSON has no comments; take this one out"
        return f"expected a value, got {self.show(at)}"

    def number(self, match: re.Match[str], at: int) -> int | float:
        whole, fraction, exponent = match.groups()
        if fraction or exponent:
            return float(match.group())
        if len(whole) > 4000:
            raise self.error("a number of more than 4000 digits", at)
        return int(whole)

    def string(self, at: int) -> tuple[str, int]:
        parts, here = [], at + 1
        while True:
            plain = _PLAIN.match(self.text, here)
            assert plain is not None
            parts.append(plain.group())
            here = plain.end()
            stop = self.text[here : here + 1]
            if stop == '"':
                return "".join(parts), here + 1
            if stop != "\\":
                what = "ends with the file" if not stop else "runs over the end of its line"
                if stop not in ("", "\n", "\r"):
                    raise self.error(f"control character {stop!r} inside a text", here)
                raise self.error(f'this text {what}: its closing " is missing', at)
            character, here = self.escape(here)
            parts.append(character)

    def escape(self, at: int) -> tuple[str, int]:
        mark = self.text[at + 1 : at + 2]
        if mark in _ESCAPES:
            return _ESCAPES[mark], at + 2
        code = self.unit(at)
        if code is None:
            raise self.error(f"\\{mark} is no escape of JSON; a backslash itself is written \\\\", at)
        if 0xD800 <= code < 0xDC00:
            low = self.unit(at + 6)
            if low is not None and 0xDC00 <= low < 0xE000:
                return chr(0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)), at + 12
        return chr(code), at + 6

    def unit(self, at: int) -> int | None:
        """The number in \\uXXXX at an offset; None where there is none."""
        digits = _HEX.match(self.text, at + 2)
        return int(digits.group(), 16) if self.text.startswith("\\u", at) and digits else None

    def sequence(self, at: int, depth: int) -> tuple[Node, int]:
        items: list[Node] = []
        here = self.skip(at + 1)
        if self.text[here : here + 1] == "]":
            return self.node(items, at), here + 1
        while True:
            item, end = self.value(here, depth + 1)
            items.append(item)
            here, closed = self.separator(end, "]", at)
            if closed:
                return self.node(items, at), here

    def mapping(self, at: int, depth: int) -> tuple[Node, int]:
        items: dict[str, Node] = {}
        lines: dict[str, int] = {}
        repeated: list[tuple[str, int]] = []
        here = self.skip(at + 1)
        if self.text[here : here + 1] == "}":
            return self.node(items, at), here + 1
        while True:
            if self.text[here : here + 1] != '"':
                raise self.error(f'expected a key in double quotes, as "rank_id", got {self.show(here)}', here)
            key, end = self.string(here)
            line, _ = self.place(here)
            if key in items:
                repeated.append((key, line))
            end = self.skip(end)
            if self.text[end : end + 1] != ":":
                raise self.error(f'expected ":" after the key "{key}", got {self.show(end)}', end)
            items[key], end = self.value(self.skip(end + 1), depth + 1)
            lines[key] = line
            here, closed = self.separator(end, "}", at)
            if closed:
                return self.node(items, at, key_lines=lines, repeated=tuple(repeated)), here

    def separator(self, end: int, closing: str, opened: int) -> tuple[int, bool]:
        """What follows an element that ends at `end`: the offset of the next one, or the one behind `closing` and True."""
        here = self.skip(end)
        mark = self.text[here : here + 1]
        if mark == closing:
            return here + 1, True
        if mark == ",":
            following = self.skip(here + 1)
            if self.text[following : following + 1] == closing:
                raise self.error(f"a comma too many before {closing!r}", here)
            return following, False
        opening = self.text[opened]
        if not mark:
            line, column = self.place(opened)
            message = f"the file ends, but {opening!r} of line {line}, column {column} is still open"
            raise self.error(message, here)
        if mark in "]}":
            raise self.error(f"{mark!r} does not close {opening!r} of line {self.place(opened)[0]}", here)
        # The comma belongs behind the element before, which is often the end of the line above.
        raise self.error(f"a comma is missing here, before {self.show(here)}", end)
