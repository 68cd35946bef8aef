"""Which library tokenizes a corpus: the fastest that gives the reference's ids on a sample of that very corpus.

Fast libraries are silently wrong for some models (msllm.data.backends), so none is trusted for its name: at least
SAMPLE_DOCUMENTS documents, spread over the input, and a list of awkward texts are encoded both ways before the run. During
it, a worker compares one document in CHECK_EVERY (data_tools.packing).
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import Literal

from data_tools.packing import Segmenter
from data_tools.plan import Plan
from data_tools.readers import Piece, UnitReader
from data_tools.streams import DamagedStream, HashedRange, blocks
from data_tools.units import Unit
from msllm.data.backends import BACKENDS, FUZZ, BackendName, BackendUnavailable, first_difference, prepare
from msllm.data.tokenizer import Tokenizer
from msllm.errors import InputError, Problem

Wish = Literal["auto", "gigatoken", "kitoken", "reference"]
SAMPLE_DOCUMENTS = 2048
SAMPLE_CHARS = 4000
"""Taken of the beginning of each document; the running check compares whole ones."""
_SAMPLE_UNITS = 256
_HEAD_BYTES = 4 * SAMPLE_CHARS


@dataclass(frozen=True)
class Choice:
    """The library for a conversion, and what became of the faster ones."""

    backend: BackendName
    documents: int
    """Documents of the corpus on which it was compared with the reference; 0 for the reference itself."""
    passed_over: tuple[str, ...]
    """Why faster ones are not used, in words."""
    prepared: str = field(default="", repr=False)
    """For `Tokenizer.use` in other processes."""


def choose_backend(plan: Plan, wish: Wish) -> Choice:
    """Try the libraries from the fastest on, or the one that is wished.

    Raises:
        InputError: the wished one is not installed, does not take the tokenizer, or gives other ids.
    """
    if wish == "reference":
        return Choice("reference", 0, ())
    sample: list[str] | None = None
    passed_over: list[str] = []
    for name in BACKENDS[:-1] if wish == "auto" else (wish,):
        # Each with a tokenizer of its own: the plan's stays the reference.
        try:
            prepared = prepare(plan.tokenizer, name)
            plan.tokenizer.use(name, prepared)
            if sample is None:
                sample = list(sample_texts([unit for job in plan.jobs for unit in job.units], plan.options.text_key))
            difference = _difference(plan.tokenizer, [*FUZZ, *sample])
        except ImportError:
            difference = f"is not installed (pip install {name})"
        except BackendUnavailable as error:
            difference = str(error)
        finally:
            plan.tokenizer.use("reference")
        if difference is None:
            return Choice(name, len(sample or ()), tuple(passed_over), prepared)
        passed_over.append(f"{name} {difference}")
    if wish != "auto":
        message = f"--tokenizer-backend {passed_over[0]}. Use --tokenizer-backend auto, or reference"
        raise InputError(Problem(message, plan.tokenizer.path))
    return Choice("reference", 0, tuple(passed_over))


def sample_texts(units: Sequence[Unit], text_key: str, count: int = SAMPLE_DOCUMENTS) -> Iterator[str]:
    """Beginnings of `count` documents spread over the units, or of all where there are fewer; the same for the same input."""
    order = random.Random(0).sample(units, len(units))
    quota = -(-count // min(len(order), _SAMPLE_UNITS))
    left = count
    for skip, take in ((0, quota), (quota, count)):
        for unit in order:
            if left <= 0:
                return
            for text in islice(_beginnings(unit, text_key), skip, skip + min(take, left)):
                left -= 1
                yield text


def _beginnings(unit: Unit, text_key: str) -> Iterator[str]:
    """The beginnings of a unit's documents, those left out that cannot be used."""
    if unit.source.kind != "text":
        for item in UnitReader(unit, text_key):
            if isinstance(item, Piece):
                yield item.text[:SAMPLE_CHARS]
        return
    # A text file is one document, which may be large: the reader would go through all of it first.
    with HashedRange(unit.source.path, unit.start, unit.end) as raw:
        try:
            with closing(blocks(raw, unit.source.compression)) as parts:
                head = next(parts, b"")[:_HEAD_BYTES]
        except DamagedStream:
            return
    yield head.decode("utf-8", "ignore")[:SAMPLE_CHARS]


def _difference(tokenizer: Tokenizer, texts: list[str]) -> str | None:
    """Where the tokenizer's backend and the reference part, in words; None where they agree on all texts."""
    segmenter = Segmenter(tokenizer)
    segments = [segment for text in texts for segment in segmenter.segments(Piece(text, True))]
    place = first_difference(tokenizer, [s.text for s in segments], [s.continued for s in segments])
    if place is None:
        return None
    text = segments[place].text
    return f"gives other tokens than {tokenizer.reference} for {_short(text)}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:60] + "...")
