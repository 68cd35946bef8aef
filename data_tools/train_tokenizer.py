"""`msllm data train-tokenizer`: a SentencePiece BPE model of the kind Llama uses, from a corpus.

Byte fallback (no text is unknown), identity normalisation (decoding gives the text back), every digit a token of its own
and no newline inside a token. The library trains in a child process, because it can be neither watched nor stopped from within.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path

from data_tools.progress import Progress
from data_tools.readers import Fault, Notice, UnitReader, first_line
from data_tools.shard import SHOWN_FAULTS, FoundFault, OnError, unusable
from data_tools.sources import Source, find_sources
from data_tools.units import Unit, divide, find_units
from data_tools.words import counted
from msllm.errors import InputError, Problem, RunError
from msllm.files import sha256_of, write_atomic

SAMPLE_PARTS = 64
"""A corpus that is larger than the sample gives the beginning of each of so many equal parts."""
BYTE_TOKENS = 256 + 3
"""Every byte, and <unk>, <s>, </s>."""
MAX_VOCAB_SIZE = 1 << 20

_LINE_CHARS = 1 << 18
_MAX_LINE_BYTES = 1 << 20
"""SentencePiece leaves longer ones out without a word."""


@dataclass(frozen=True)
class TrainRequest:
    """The arguments of `msllm data train-tokenizer`."""

    inputs: Sequence[str | Path]
    vocab_size: int
    """Tokens, with <unk>, <s>, </s> and the 256 bytes."""
    output: Path
    """The .model file."""
    text_key: str = "text"
    sample_mb: int = 200
    """Text to learn from, in 10^6 characters; the library needs about ten bytes of memory for each."""
    character_coverage: float = 0.9995
    """Share of the text whose characters become tokens; the rest is written in bytes."""
    on_error: OnError = "fail"
    overwrite: bool = False


@dataclass(frozen=True)
class TrainSummary:
    """What was made."""

    output: Path
    vocab_size: int
    fingerprint: str
    documents: int
    characters: int
    sampled: bool
    """The corpus is larger than the sample."""
    skipped: dict[str, int]
    seconds: float


def train_tokenizer(request: TrainRequest, quiet: bool = False) -> TrainSummary:
    """Learn a tokenizer and write it; the same corpus gives the same file on any number of cores.

    Starts a process, so a script that calls it needs the usual `if __name__ == "__main__":`.

    Raises:
        InputError: wrong arguments, unusable input, or a corpus too small for so many tokens.
        RunError: the training process died.
    """
    start = time.monotonic()
    _refuse(request)
    sources = find_sources(request.inputs, {request.output: "the output"}).sources
    with Progress("read", sum(source.size for source in sources), quiet=quiet) as progress:
        child = _Child(request, sources)
        try:
            result = child.watch(progress, quiet)
        finally:
            child.end()
    if result.problems:
        raise InputError(result.problems)
    if result.error:
        raise _explained(result.error, request, result)
    write_atomic(request.output, result.model)
    return TrainSummary(
        output=request.output,
        vocab_size=request.vocab_size,
        fingerprint=sha256_of(request.output),
        documents=result.documents,
        characters=result.characters,
        sampled=result.sampled,
        skipped=result.skipped,
        seconds=time.monotonic() - start,
    )


def _refuse(request: TrainRequest) -> None:
    problems = []
    if not BYTE_TOKENS < request.vocab_size <= MAX_VOCAB_SIZE:
        limits = f"above {BYTE_TOKENS} (3 control tokens and 256 bytes) and at most {MAX_VOCAB_SIZE}"
        problems.append(Problem(f"--vocab-size ({request.vocab_size}) must be {limits}"))
    if request.sample_mb < 1:
        problems.append(Problem(f"--sample-mb ({request.sample_mb}) must be at least 1"))
    if not 0.9 <= request.character_coverage <= 1:
        problems.append(Problem(f"--character-coverage ({request.character_coverage}) must be between 0.9 and 1"))
    if request.output.is_dir():
        problems.append(Problem("is a folder; --output names the .model file", request.output))
    elif request.output.exists() and not request.overwrite:
        problems.append(Problem("exists; replace it with --overwrite, or choose another --output", request.output))
    if problems:
        raise InputError(problems)
    try:
        request.output.parent.mkdir(parents=True, exist_ok=True)
        # Now, and not when hours of training are over; permissions alone do not tell.
        with tempfile.NamedTemporaryFile(dir=request.output.parent, prefix=".msllm-"):
            pass
    except FileExistsError:
        raise InputError(Problem(f"cannot be written: {request.output.parent} is a file", request.output)) from None
    except OSError as error:
        raise InputError(Problem(f"cannot be written: {error.strerror}", request.output)) from None


@dataclass
class _Result:
    """What the child sends at its end."""

    model: bytes = b""
    error: str = ""
    problems: tuple[Problem, ...] = ()
    documents: int = 0
    characters: int = 0
    sampled: bool = False
    skipped: dict[str, int] = field(default_factory=dict)


def _explained(error: str, request: TrainRequest, result: _Result) -> InputError:
    """SentencePiece's message in the words of our options."""
    corpus = f"the corpus ({counted(result.documents, 'document')}, {counted(result.characters, 'character')})"
    if match := re.search(r"Vocabulary size too high .* value <= (\d+)", error):
        return InputError(
            f"--vocab-size ({request.vocab_size}) must be at most {match[1]} for {corpus}: it repeats no more pairs"
        )
    if match := re.search(r"smaller than required_chars\. \d+ vs (\d+)", error):
        return InputError(
            f"--vocab-size ({request.vocab_size}) must be at least {match[1]} for {corpus}, which has so many different "
            f"characters; or lower --character-coverage ({request.character_coverage}), so that rare ones become bytes"
        )
    if not result.characters:
        return InputError("the corpus is empty: no line of text")
    return InputError(f"SentencePiece cannot train on {corpus}: {error}")


class _Child:
    """The process that trains: its results come through one pipe, the library's log through another."""

    def __init__(self, request: TrainRequest, sources: list[Source]):
        context = multiprocessing.get_context("spawn")
        self._results, results = context.Pipe(duplex=False)
        self._log, log = context.Pipe(duplex=False)
        self._process = context.Process(target=_train, args=(request, sources, results, log), daemon=True)
        self._process.start()
        results.close()
        log.close()
        self._tokens = request.vocab_size

    def watch(self, reading: Progress, quiet: bool) -> _Result:
        """Show how far it is, until the result is there."""
        learning: Progress | None = None
        streams: list[Connection] = [self._results, self._log]
        rest = b""
        try:
            while True:
                ready = wait(streams)
                if self._log in ready:
                    block = os.read(self._log.fileno(), 1 << 16)
                    if not block:
                        streams.remove(self._log)
                    *lines, rest = (rest + block).split(b"\n")
                    if merges := _merges(lines):
                        if learning is None:
                            reading.close()
                            learning = Progress("learn", self._tokens, quiet=quiet, unit="tokens")
                        learning.reach(BYTE_TOKENS + merges)
                if self._results in ready:
                    message = self._results.recv()
                    if isinstance(message, _Result):
                        return message
                    reading.advance(message)
        except EOFError:
            self._process.join()
            code = self._process.exitcode or 0
            how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            raise RunError(
                f"the training process died ({how}); when memory ran out, try a smaller --sample-mb"
            ) from None
        finally:
            if learning:
                learning.close()

    def end(self) -> None:
        self._process.kill()
        self._process.join()


def _merges(lines: list[bytes]) -> int:
    """Last count of merges that the log tells of, 0 where it tells of none."""
    found = [re.search(rb"merges=(\d+)", line) for line in lines]
    return max((int(match[1]) for match in found if match), default=0)


def _train(request: TrainRequest, sources: list[Source], results: Connection, log: Connection) -> None:
    """The child: read, train, send the model."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the parent, which ends the child
    os.dup2(log.fileno(), 2)
    from sentencepiece import SentencePieceTrainer

    result = _Result()
    model = io.BytesIO()
    try:
        corpus = _Corpus(request, sources, result, results.send)
        SentencePieceTrainer.train(
            sentence_iterator=corpus.lines(),
            model_writer=model,
            model_type="bpe",
            vocab_size=request.vocab_size,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            split_digits=True,
            allow_whitespace_only_pieces=True,
            character_coverage=request.character_coverage,
            max_sentence_length=_MAX_LINE_BYTES,
            num_threads=len(os.sched_getaffinity(0)),
        )
        result.model = _normal(model.getvalue())
    except InputError as error:
        result.problems = error.problems
    except (RuntimeError, OSError, ValueError) as error:
        result.error = str(error)
    results.send(result)


def _normal(model: bytes) -> bytes:
    """The model without the number of threads, the only thing in it that depends on the machine."""
    from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined]

    proto = ModelProto()
    proto.ParseFromString(model)
    proto.trainer_spec.num_threads = 1
    return proto.SerializeToString(deterministic=True)


class _Corpus:
    """The lines to learn from: all, or the beginnings of equal parts up to the sample's size."""

    def __init__(self, request: TrainRequest, sources: list[Source], result: _Result, on_bytes: Callable[[int], None]):
        self._request = request
        self._sources = sources
        self._result = result
        self._on_bytes = on_bytes
        self._faults: list[FoundFault] = []
        self._skipped: Counter[str] = Counter()

    def lines(self) -> Iterator[str]:
        share = self._request.sample_mb * 1_000_000 // SAMPLE_PARTS
        for units in divide(find_units(self._sources, self._request.text_key), SAMPLE_PARTS):
            taken = 0
            for text in self._documents(units):
                self._result.documents += 1
                for line in text.split("\n"):
                    for start in range(0, len(line), _LINE_CHARS):
                        yield line[start : start + _LINE_CHARS]
                taken += len(text)
                self._result.characters += len(text)
                if taken >= share:
                    self._result.sampled = True
                    break
        if self._faults and self._request.on_error == "fail":
            raise unusable(
                self._faults, self._skipped, "Mend the input, or leave such documents out with --on-error skip"
            )
        self._result.skipped = dict(sorted(self._skipped.items()))

    def _documents(self, units: list[Unit]) -> Iterator[str]:
        for unit in units:
            try:
                for item in UnitReader(unit, self._request.text_key, self._on_bytes):
                    if isinstance(item, Fault):
                        self._found(unit, item)
                    elif not isinstance(item, Notice):
                        yield item.text
            except OSError as error:
                raise InputError(Problem(f"cannot be read: {error.strerror or error}", unit.source.path)) from None

    def _found(self, unit: Unit, fault: Fault) -> None:
        self._skipped[fault.kind] += 1
        if len(self._faults) < SHOWN_FAULTS:
            line = fault.line + first_line(unit) - 1 if fault.line else 0
            self._faults.append(FoundFault(file=unit.source.path, line=line, kind=fault.kind, detail=fault.detail))
