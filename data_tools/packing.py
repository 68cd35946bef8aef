"""From documents to rows: segments that the tokenizer can take, one stream of tokens, rows that overlap by one token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from data_tools.readers import Piece
from msllm.data.backends import first_difference
from msllm.data.tokenizer import Tokenizer

MAX_SEGMENT_CHARS = 1 << 20
"""SentencePiece takes about 40 bytes of memory a character."""
BATCH_CHARS = 1 << 22
BATCH_SEGMENTS = 1 << 15
CHECK_EVERY = 256
"""Of so many segments one is encoded by the reference too, where another library encodes: 2 to 4% of the time."""


class Segment(NamedTuple):
    """A text that is encoded on its own: a document, or a part of it."""

    text: str
    continued: bool
    """It goes on where the one before ended."""
    last: bool
    """The document ends with it."""


class WrongTokens(Exception):
    """A fast backend gave other ids than the reference for the `document`-th document of the stream, counted from 0."""

    def __init__(self, document: int):
        super().__init__(document)
        self.document = document


class Segmenter:
    """Cuts documents into segments for `tokenizer`, at places where that changes no token wherever there are any."""

    def __init__(self, tokenizer: Tokenizer):
        self.forced_cuts = 0
        """Cuts where no such place was found within MAX_SEGMENT_CHARS characters."""
        self._tokenizer = tokenizer
        self._open = ""
        self._inside = False

    def segments(self, piece: Piece) -> Iterator[Segment]:
        """Yield the segments of a piece, keeping back what may go on in the next piece."""
        limit = self._tokenizer.segment_chars
        text = self._open + piece.text if self._open else piece.text
        start = 0
        while len(text) - start > limit:
            place = self._place(text, start)
            if place == 0:
                break
            yield Segment(text[start:place], self._inside, False)
            self._inside = True
            start = place
        rest = text[start:] if start else text
        if piece.last:
            yield Segment(rest, self._inside, True)
            self._open, self._inside = "", False
        else:
            self._open = rest

    def _place(self, text: str, start: int) -> int:
        """Where to cut `text` after `start`; 0 where the rest may stay whole for now."""
        reach = self._tokenizer.segment_chars
        while True:
            end = min(len(text), start + reach)
            place = self._tokenizer.boundary(text, start, end)
            if place:
                return place
            if reach >= MAX_SEGMENT_CHARS:
                if len(text) - start <= MAX_SEGMENT_CHARS:
                    return 0
                self.forced_cuts += 1
                return start + MAX_SEGMENT_CHARS
            if end == len(text):
                return 0
            reach = min(reach * 8, MAX_SEGMENT_CHARS)


def token_stream(segments: Iterable[Segment], tokenizer: Tokenizer) -> Iterator[np.ndarray]:
    """Encode segments in batches; yield the ids of each batch in one piece, int32 (any), an EOD after every document.

    Raises:
        WrongTokens: the running check of a fast backend failed.
    """
    batch: list[Segment] = []
    chars = 0
    check = _RunningCheck(tokenizer)
    for segment in segments:
        batch.append(segment)
        chars += len(segment.text)
        if chars >= BATCH_CHARS or len(batch) >= BATCH_SEGMENTS:
            yield _encode(batch, tokenizer, check)
            batch, chars = [], 0
    if batch:
        yield _encode(batch, tokenizer, check)


def _encode(batch: list[Segment], tokenizer: Tokenizer, check: _RunningCheck) -> np.ndarray:
    texts, continued, ends = zip(*batch)
    check(texts, continued, ends)
    ids, counts = tokenizer.encode_flat(texts, continued)
    last = np.cumsum(counts)[np.array(ends)]
    stream = np.full(len(ids) + len(last), tokenizer.eod_id, np.int32)
    is_text = np.ones(len(stream), bool)
    is_text[last + np.arange(len(last))] = False
    stream[is_text] = ids
    return stream


class _RunningCheck:
    """Compares one segment in CHECK_EVERY with the reference; does nothing where the reference encodes."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._next = 0
        self._documents = 0

    def __call__(self, texts: Sequence[str], continued: Sequence[bool], ends: Sequence[bool]) -> None:
        if self._tokenizer.backend == "reference":
            return
        places = range(self._next, len(texts), CHECK_EVERY)
        if places:
            place = first_difference(self._tokenizer, [texts[i] for i in places], [continued[i] for i in places])
            if place is not None:
                raise WrongTokens(self._documents + sum(ends[: places[place]]))
            self._next = places[-1] + CHECK_EVERY
        self._next -= len(texts)
        self._documents += sum(ends)


class Packer:
    """Cuts a stream of tokens into rows of seq_length + 1; each row begins with the last token of the one before.

    So every token but the first is once a label, and a reader gets inputs `row[:-1]` and labels `row[1:]`.
    """

    def __init__(self, seq_length: int):
        self.tokens = 0
        """Tokens received."""
        self.rows = 0
        """Rows given."""
        self._seq_length = seq_length
        self._rest = np.empty(0, dtype=np.int32)

    def add(self, tokens: np.ndarray) -> np.ndarray:
        """Rows that `tokens` complete, int32 (any, seq_length + 1)."""
        self.tokens += len(tokens)
        length = self._seq_length
        stream = np.concatenate([self._rest, tokens])
        count = max(0, (len(stream) - 1) // length)
        rows = np.empty((count, length + 1), dtype=np.int32)
        rows[:, :length] = stream[: count * length].reshape(count, length)
        rows[:, length] = stream[length : count * length + 1 : length]
        self._rest = stream[count * length :].copy()
        self.rows += count
        return rows

    @property
    def left(self) -> int:
        """Tokens that are in no row yet."""
        return len(self._rest) - (1 if self.rows else 0)

    def pad(self, token: int) -> tuple[np.ndarray, int]:
        """The last row, filled with `token`, int32 (1 or 0, seq_length + 1), and how many it took."""
        if self.left <= 0:
            return np.empty((0, self._seq_length + 1), dtype=np.int32), 0
        padding = self._seq_length + 1 - len(self._rest)
        row = self.add(np.full(padding, token, dtype=np.int32))
        self.tokens -= padding
        return row, padding
