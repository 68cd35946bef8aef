"""One shard: its units read, tokenized, cut into rows and written as one MindRecord file. What a worker does."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from data_tools.packing import Packer, Segment, Segmenter, WrongTokens, token_stream
from data_tools.readers import Fault, Notice, Piece, UnitReader, first_line
from data_tools.units import COMPRESSED_WEIGHT, Unit
from data_tools.words import counted
from msllm.config.sections import Section
from msllm.data.backends import BackendName
from msllm.data.manifest import ConvertOptions, ShardInfo, SourceInfo
from msllm.data.mindrecord import MindRecordWriter, index_of
from msllm.data.tokenizer import Tokenizer
from msllm.errors import InputError, Problem, RunError
from msllm.files import fsync, sha256_of, write_atomic

OnError = Literal["fail", "skip"]
SHOWN_FAULTS = 20
"""Documents that cannot be used are all counted; so many are shown with file and line."""
SCAN_BYTES = 64 << 20
"""With `--on-error fail`, so much is read after the first fault in search of more."""


class FoundFault(Section):
    """A document that cannot be used, and where it stands."""

    file: str
    line: int
    """0: the file as a whole."""
    kind: str
    detail: str

    def problem(self) -> Problem:
        """For an error message."""
        return Problem(f"{self.kind}: {self.detail}" if self.detail else self.kind, self.file, self.line or None)


def unusable(faults: Sequence[FoundFault], counts: Mapping[str, int], remedy: str) -> InputError:
    """The error that names the first faults, and counts all that were found."""
    total = sum(counts.values())
    kinds = ", ".join(f"{count:,} x {kind}" for kind, count in sorted(counts.items()))
    found = f"{counted(total, 'document')} that cannot be used {'was' if total == 1 else 'were'} found before stopping"
    summary = f"{found}: {kinds}. {remedy}"
    return InputError([*(fault.problem() for fault in faults), Problem(summary)])


class ShardResult(Section):
    """What a finished shard leaves beside its file, for the manifest and for a run that continues."""

    number: int
    info: ShardInfo | None
    """None: it fills no row, so there is no file."""
    documents: int
    tokens: int
    dropped_tokens: int
    skipped: dict[str, int]
    """Kind of fault -> documents left out."""
    faults: tuple[FoundFault, ...]
    """The first of them."""
    notices: dict[str, int]
    sources: tuple[SourceInfo, ...]
    backend: BackendName
    """Library that tokenized; the bytes do not depend on it, unless it turns out to be wrong."""


class BackendWrong(RunError):
    """A fast tokenizer library gave wrong ids for a document, so that all it has made is in doubt."""

    def __init__(self, message: str, backend: BackendName):
        super().__init__(message)
        self.backend = backend

    def __reduce__(self) -> tuple[type[BackendWrong], tuple[str, BackendName]]:
        return BackendWrong, (str(self), self.backend)


@dataclass(frozen=True)
class ShardJob:
    """What a worker is given."""

    number: int
    units: tuple[Unit, ...]

    @property
    def file(self) -> str:
        """Name of the MindRecord file."""
        return f"shard-{self.number:05d}.mindrecord"


@dataclass(frozen=True)
class ShardFolders:
    """Where a worker puts things, all below the working folder of the conversion."""

    output: Path
    """Finished files, which become the dataset."""
    results: Path
    """`<shard>.json`, the mark that a shard is finished, written last."""
    temporary: Path
    """Unfinished files."""


Progress = Callable[[int, int], None]
"""(bytes of input read, tokens made), both since the last call."""


def convert_shard(
    job: ShardJob,
    options: ConvertOptions,
    on_error: OnError,
    tokenizer: Tokenizer,
    folders: ShardFolders,
    progress: Progress,
) -> ShardResult:
    """Make one shard's file and its result; afterwards both are on the disk, or neither.

    Raises:
        InputError: with `on_error="fail"`, the first documents that cannot be used; a file that cannot be read.
        RunError: the disk is full; an input changed while it was read.
        BackendWrong: the tokenizer's backend is not the reference and gave other ids than it.
    """
    reading = _Reading(job, options, on_error, tokenizer, progress)
    file = _ShardFile(job, options, folders)
    try:
        for tokens in token_stream(reading.segments(), tokenizer):
            file.add(tokens)
            progress(0, len(tokens))
    except WrongTokens as wrong:
        place = _place_of(job, options.text_key, wrong.document)
        message = f"{place}: {tokenizer.backend} gives other tokens than {tokenizer.reference} for this document"
        raise BackendWrong(message, tokenizer.backend) from None
    if options.tail == "pad":
        file.pad(tokenizer.eod_id)
    result = ShardResult(
        number=job.number,
        info=file.finish(reading.documents, reading.segmenter.forced_cuts),
        documents=reading.documents,
        tokens=file.packer.tokens,
        dropped_tokens=file.packer.left,
        skipped=dict(sorted(reading.skipped.items())),
        faults=tuple(reading.faults),
        notices=dict(sorted(reading.notices.items())),
        sources=tuple(reading.sources),
        backend=tokenizer.backend,
    )
    write_atomic(folders.results / f"{job.file}.json", result.model_dump_json(indent=1))
    return result


class _ShardFile:
    """A MindRecord file in the making; there is none before the first row."""

    def __init__(self, job: ShardJob, options: ConvertOptions, folders: ShardFolders):
        self.packer = Packer(options.seq_length)
        self._name = job.file
        self._output = folders.output
        self._folder = folders.temporary / job.file
        self._expected = sum(unit.end - unit.start for unit in job.units) * COMPRESSED_WEIGHT
        self._seq_length = options.seq_length
        self._writer: MindRecordWriter | None = None
        self._padding = 0
        self._largest = 0
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def add(self, tokens: np.ndarray) -> None:
        """Take ids, int32 (any), and write the rows that they complete."""
        self._largest = max(self._largest, int(tokens.max(initial=0)))
        self._write(self.packer.add(tokens))

    def pad(self, token: int) -> None:
        rows, self._padding = self.packer.pad(token)
        self._write(rows)

    def finish(self, documents: int, forced_cuts: int) -> ShardInfo | None:
        """Flush and hash the file and its index, and move both: a pair that moves together stays readable."""
        info = None
        if self._writer is not None:
            self._writer.commit()
            path = self._writer.path
            index = index_of(path)
            fsync(path)
            fsync(index)
            info = ShardInfo(
                file=self._name,
                rows=self.packer.rows,
                tokens=self.packer.tokens,
                documents=documents,
                padding_tokens=self._padding,
                dropped_tokens=self.packer.left,
                forced_cuts=forced_cuts,
                max_token_id=self._largest,
                bytes=path.stat().st_size,
                sha256=sha256_of(path),
                index_bytes=index.stat().st_size,
                index_sha256=sha256_of(index),
            )
            os.replace(index, self._output / index.name)
            os.replace(path, self._output / path.name)
            fsync(self._output)
        shutil.rmtree(self._folder)
        return info

    def _write(self, rows: np.ndarray) -> None:
        if len(rows) == 0:
            return
        if self._writer is None:
            self._writer = MindRecordWriter(self._folder / self._name, self._seq_length, self._expected)
        self._writer.write(rows)


class _Reading:
    """Goes through a shard's units and gives segments; keeps count of everything on the way."""

    def __init__(
        self, job: ShardJob, options: ConvertOptions, on_error: OnError, tokenizer: Tokenizer, progress: Progress
    ):
        self.segmenter = Segmenter(tokenizer)
        self.documents = 0
        self.skipped: Counter[str] = Counter()
        self.faults: list[FoundFault] = []
        self.notices: Counter[str] = Counter()
        self.sources: list[SourceInfo] = []
        self._job = job
        self._options = options
        self._stop = on_error == "fail"
        self._progress = progress
        self._scanned = 0

    def segments(self) -> Iterator[Segment]:
        for unit in self._job.units:
            reader = UnitReader(unit, self._options.text_key, self._on_bytes)
            shift: int | None = None
            try:
                for item in reader:
                    if isinstance(item, Notice):
                        self.notices[item.kind] += 1
                    elif isinstance(item, Fault):
                        if shift is None:
                            shift = first_line(unit) - 1
                        self._found(unit, item, shift)
                    elif self._stop and self.faults:
                        self._scan_on()
                    else:
                        self.documents += item.last
                        yield from self.segmenter.segments(item)
            except OSError as error:
                raise InputError(Problem(f"cannot be read: {error.strerror or error}", unit.source.path)) from None
            _refuse_changed(unit)
            self.sources.append(_source_info(unit, reader.sha256, self._job.number))
        if self._stop and self.faults:
            self._raise()

    def _on_bytes(self, count: int) -> None:
        self._scanned += count
        self._progress(count, 0)

    def _found(self, unit: Unit, fault: Fault, shift: int) -> None:
        if not self.faults:
            self._scanned = 0
        self.skipped[fault.kind] += 1
        if len(self.faults) < SHOWN_FAULTS:
            line = fault.line + shift if fault.line else 0
            self.faults.append(FoundFault(file=unit.source.path, line=line, kind=fault.kind, detail=fault.detail))
        if self._stop:
            self._scan_on()

    def _scan_on(self) -> None:
        """With `--on-error fail`: look for more faults, so that the user hears of several at once, but not for long."""
        if len(self.faults) >= SHOWN_FAULTS or self._scanned > SCAN_BYTES:
            self._raise()

    def _raise(self) -> None:
        raise unusable(self.faults, self.skipped, "Mend the input, or leave such documents out with --on-error skip")


def _place_of(job: ShardJob, text_key: str, document: int) -> str:
    """`file:line` of a shard's document, counted from 0."""
    for unit in job.units:
        for item in UnitReader(unit, text_key):
            if isinstance(item, Piece) and item.last:
                if document == 0:
                    return f"{unit.source.path}:{item.line + first_line(unit) - 1}" if item.line else unit.source.path
                document -= 1
    return job.file


def _refuse_changed(unit: Unit) -> None:
    status = os.stat(unit.source.path)
    if (status.st_size, status.st_mtime_ns) != (unit.source.size, unit.source.mtime_ns):
        raise RunError(f"{unit.source.path}: changed while it was converted; run again with --restart")


def _source_info(unit: Unit, sha256: str, shard: int) -> SourceInfo:
    return SourceInfo(file=unit.source.name, start=unit.start, end=unit.end, sha256=sha256, shard=shard)
