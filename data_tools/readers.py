"""From a range of an input file to its documents, and to what is wrong with those that cannot be used."""

from __future__ import annotations

import codecs
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from typing import Any, NamedTuple

import orjson

from data_tools.foreign import HEAD, foreign
from data_tools.json_values import BrokenValue, json_values
from data_tools.sources import Source
from data_tools.streams import DamagedStream, HashedRange, blocks
from data_tools.units import Unit

PIECE_CHARS = 1 << 22
"""A text file up to this length is one piece; a longer one comes in several, so that memory stays bounded."""

BROKEN_JSON = "broken JSON"
NOT_AN_OBJECT = "not a JSON object"
MISSING_KEY = "missing key"
NOT_A_STRING = "not a string"
INVALID_UTF8 = "invalid UTF-8"
SURROGATE = "lone surrogate"
NUL = "NUL byte"
EMPTY = "empty document"
UTF16 = "UTF-16 file"
BINARY = "not a text file"
DAMAGED = "damaged file"
FAULT_KINDS = (
    BROKEN_JSON,
    NOT_AN_OBJECT,
    MISSING_KEY,
    NOT_A_STRING,
    INVALID_UTF8,
    SURROGATE,
    NUL,
    EMPTY,
    UTF16,
    BINARY,
    DAMAGED,
)

BLANK_LINE = "blank lines between documents, passed over"
BYTE_ORDER_MARK = "files with a UTF-8 byte order mark, which is not part of the text"
CRLF = "text files with CRLF line ends, which are kept"

_MARK = codecs.BOM_UTF8


class Piece(NamedTuple):
    """Text of a document, or of a part of it."""

    text: str
    last: bool
    """The document ends here."""
    line: int = 0
    """As a Fault's."""


class Fault(NamedTuple):
    """A document that cannot be used."""

    kind: str
    detail: str
    line: int
    """Counted from 1 at the start of the unit; rows in Parquet, 0 for the file as a whole."""


class Notice(NamedTuple):
    """Something harmless that the user should hear of."""

    kind: str


Item = Piece | Fault | Notice


class UnitReader:
    """Iterate over it for pieces, faults and notices; afterwards `sha256` is that of the unit's bytes.

    Args:
        unit: what to read.
        text_key: key or column of the text in JSON and Parquet.
        on_bytes: called with every number of bytes read, for the progress.
    """

    def __init__(self, unit: Unit, text_key: str, on_bytes: Callable[[int], None] = lambda count: None):
        self.unit = unit
        self.sha256 = ""
        self._key = text_key
        self._on_bytes = on_bytes
        self._marked = False

    def __iter__(self) -> Iterator[Item]:
        kind = self.unit.source.kind
        with self._open(self._on_bytes if kind != "parquet" else _ignore) as raw:
            try:
                if kind == "parquet":
                    yield from self._parquet()
                elif kind == "text":
                    yield from self._text(raw)
                elif kind == "json":
                    yield from self._json(raw)
                elif self.unit.start == 0 or self._file_fault() is None:
                    yield from self._lines(raw)
            except _Unusable as error:
                yield error.fault
            except DamagedStream as error:
                yield Fault(DAMAGED, f"{error}; what follows is lost", 0)
            self.sha256 = raw.finish()

    def _open(self, on_bytes: Callable[[int], None]) -> HashedRange:
        return HashedRange(self.unit.source.path, self.unit.start, self.unit.end, on_bytes)

    def _blocks(self, raw: HashedRange) -> Iterator[bytes]:
        """The content in blocks, once its start shows that it can be text."""
        first = self.unit.start == 0
        with closing(blocks(raw, self.unit.source.compression)) as parts:
            for block in parts:
                if first and (fault := _head_fault(block[:HEAD], self.unit.source)):
                    raise _Unusable(fault)
                first = False
                yield block

    def _file_fault(self) -> Fault | None:
        """What makes a whole file of lines unusable; the unit with the file's start says it."""
        with open(self.unit.source.path, "rb") as file:
            return _head_fault(file.read(HEAD), self.unit.source)

    def _lines(self, raw: HashedRange) -> Iterator[Item]:
        for number, line in enumerate(_split_lines(self._blocks(raw)), 1):
            if number == 1 and self.unit.start == 0 and line.startswith(_MARK):
                yield Notice(BYTE_ORDER_MARK)
                line = line[len(_MARK) :]
            try:
                value = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                yield self._hard_line(line, number, error)
            else:
                yield self._document(value, number)

    def _hard_line(self, line: bytes, number: int, error: orjson.JSONDecodeError) -> Item:
        """A line that orjson refuses: blank, not UTF-8, not JSON, or JSON with Python's NaN in another field."""
        if not line.strip():
            return Notice(BLANK_LINE)
        try:
            text = line.decode()
        except UnicodeDecodeError as wrong:
            return Fault(INVALID_UTF8, f"byte {wrong.start + 1} of the line (0x{line[wrong.start]:02x})", number)
        if "\x00" in text:
            return Fault(NUL, f"character {text.index(chr(0)) + 1} of the line", number)
        try:
            return _encodable(self._document(json.loads(text), number), number)
        except (ValueError, RecursionError):
            return Fault(BROKEN_JSON, f"{error.msg} (character {error.colno})", number)

    def _document(self, value: Any, line: int) -> Item:
        """The text of one JSON value."""
        if not isinstance(value, dict):
            return Fault(NOT_AN_OBJECT, f"is {_json_type(value)}", line)
        if self._key not in value:
            keys = ", ".join(map(repr, list(value)[:8])) or "none"
            return Fault(MISSING_KEY, f"no {self._key!r} (--text-key); keys: {keys}", line)
        text = value[self._key]
        if not isinstance(text, str):
            return Fault(NOT_A_STRING, f"{self._key!r} is {_json_type(text)}", line)
        return _whole(text, line)

    def _json(self, raw: HashedRange) -> Iterator[Item]:
        for value, line in json_values(self._decoded(raw)):
            if isinstance(value, BrokenValue):
                yield Fault(BROKEN_JSON, str(value), line)
            else:
                yield _encodable(self._document(value, line), line)
        if self._marked:
            yield Notice(BYTE_ORDER_MARK)

    def _text(self, raw: HashedRange) -> Iterator[Item]:
        """A text file is one document. A long one is read to its end before the first piece is given away."""
        parts: list[str] = []
        size = 0
        crlf = nul = content = False
        for part in self._decoded(raw):
            size += len(part)
            if size <= PIECE_CHARS:
                parts.append(part)
            crlf |= "\r\n" in part
            nul |= "\x00" in part
            content |= bool(part) and not part.isspace()
        if nul:
            yield Fault(NUL, "is it a text file?", 0)
        elif not content:
            yield Fault(EMPTY, "nothing but white space" if size else "", 0)
        else:
            if self._marked:
                yield Notice(BYTE_ORDER_MARK)
            if crlf:
                yield Notice(CRLF)
            if size <= PIECE_CHARS:
                yield Piece("".join(parts), True)
            else:
                parts.clear()
                with self._open(_ignore) as again:
                    yield from (Piece(part, False) for part in self._decoded(again))
                yield Piece("", True)

    def _decoded(self, raw: HashedRange) -> Iterator[str]:
        """The text of a whole file, without its byte order mark."""
        decode = codecs.getincrementaldecoder("utf-8")().decode
        line = 1
        first = True
        for block in self._blocks(raw):
            try:
                text = decode(block)
            except UnicodeDecodeError as error:
                line += block.count(b"\n", 0, error.start)
                raise _Unusable(Fault(INVALID_UTF8, f"byte 0x{error.object[error.start]:02x}", line)) from None
            line += text.count("\n")
            if first and text.startswith("\ufeff"):
                self._marked = True
                text = text[1:]
            first = False
            yield text
        try:
            decode(b"", True)
        except UnicodeDecodeError:
            raise _Unusable(Fault(INVALID_UTF8, "the last character is cut", line)) from None

    def _parquet(self) -> Iterator[Item]:
        import pyarrow
        from pyarrow import parquet

        assert self.unit.row_groups is not None
        first, last = self.unit.row_groups
        try:
            with parquet.ParquetFile(self.unit.source.path) as file:
                sizes = [file.metadata.row_group(index).num_rows for index in range(last)]
                row = sum(sizes[:first])
                share = (self.unit.end - self.unit.start) / max(1, sum(sizes[first:]))
                for batch in file.iter_batches(
                    batch_size=1024, row_groups=range(first, last), columns=[self._key], use_threads=False
                ):
                    yield from self._cells(batch.column(0), row + 1)
                    row += len(batch)
                    self._on_bytes(round(len(batch) * share))
        except (pyarrow.ArrowException, OSError) as error:
            raise DamagedStream((str(error).splitlines() or ["?"])[0]) from None

    def _cells(self, column: Any, row: int) -> Iterator[Item]:
        """The documents of a batch, whose first is in row `row`."""
        import pyarrow

        try:
            texts = column.to_numpy(zero_copy_only=False)
        except (UnicodeDecodeError, pyarrow.ArrowException):
            # A text that is no UTF-8: one by one, so that only that one is lost.
            yield from (self._cell(scalar, row + place) for place, scalar in enumerate(column))
            return
        for place, text in enumerate(texts):
            if text is None:
                yield Fault(NOT_A_STRING, f"{self._key!r} is null", row + place)
            else:
                yield _whole(text, row + place)

    def _cell(self, scalar: Any, row: int) -> Item:
        try:
            text = scalar.as_py()
        except UnicodeDecodeError as error:
            return Fault(INVALID_UTF8, f"byte {error.start + 1} of the text", row)
        if text is None:
            return Fault(NOT_A_STRING, f"{self._key!r} is null", row)
        return _whole(text, row)


def _head_fault(head: bytes, source: Source) -> Fault | None:
    """What makes a file that begins with `head` unusable as a whole."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return Fault(UTF16, "convert it to UTF-8 first, as with `iconv -f UTF-16 -t UTF-8`", 0)
    what = foreign(head, source)
    return Fault(BINARY, what, 0) if what else None


class _Unusable(Exception):
    def __init__(self, fault: Fault):
        super().__init__(fault.kind)
        self.fault = fault


def first_line(unit: Unit) -> int:
    """Number of the file's line (counted from 1) at which a unit of a plain file of lines begins."""
    if unit.start == 0 or unit.source.kind != "lines":
        return 1
    with HashedRange(unit.source.path, 0, unit.start) as raw:
        return 1 + sum(block.count(b"\n") for block in blocks(raw, ""))


def _whole(text: str, line: int) -> Item:
    """A document that is in memory, checked."""
    if not text or text.isspace():
        return Fault(EMPTY, "nothing but white space" if text else "", line)
    if "\x00" in text:
        return Fault(NUL, f"character {text.index(chr(0)) + 1} of the text", line)
    return Piece(text, True, line)


def _encodable(item: Item, line: int) -> Item:
    """Python's json takes half a surrogate pair, which is no text; orjson and Arrow do not."""
    if isinstance(item, Piece):
        try:
            item.text.encode()
        except UnicodeEncodeError as error:
            return Fault(SURROGATE, f"character {error.start + 1} of the text", line)
    return item


def _split_lines(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their newline; nothing after the last newline is no line."""
    open_line: list[bytes] = []
    for part in parts:
        first, *others = part.split(b"\n")
        open_line.append(first)
        if others:
            yield b"".join(open_line)
            yield from others[:-1]
            open_line = [others[-1]]
    rest = b"".join(open_line)
    if rest:
        yield rest


def _json_type(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def _ignore(count: int) -> None:
    pass
