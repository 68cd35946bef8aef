"""MindRecord files of token rows: one writer per file, and a reader for tools.

Everything MindRecord is known to do badly is met here: it drops rows of a wrong dtype or shape with only a warning, it
makes small files look like 50 MB, it notices a too small header only at the end, it takes the file's name into the
file (so a pair must keep its names; moving both to another folder is fine), and it leaves mode 0600.
MindSpore is imported by the functions that need it.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from msllm.data.manifest import INDEX_SUFFIX
from msllm.errors import InputError, Problem, RunError

COLUMN = "input_ids"
"""The only column of a row."""
FORBIDDEN_IN_NAMES = set("\\:*?\"<>|`&;'")
"""What MindRecord refuses in a file name; folders may have any."""
MAX_SEQ_LENGTH = 1 << 24
"""A row must fit in a page, and MindRecord's pages have at most 256 MiB."""

_MIB = 1 << 20
_SMALL = (1 * _MIB, 4 * _MIB)
_LARGE = (16 * _MIB, 32 * _MIB)
_HEADER_BYTES_PER_PAGE = 256
"""Measured 220; the header's size is fixed before the first row is written."""
_WRITE_BYTES = 4 * _MIB
"""Rows are handed over in batches of about this size; the file's bytes do not depend on it."""


def check_file_name(name: str) -> None:
    """Raise InputError for a file name that MindRecord refuses."""
    bad = sorted(FORBIDDEN_IN_NAMES & set(name))
    if bad:
        raise InputError(Problem(f"MindRecord refuses {' '.join(bad)} in a file name", name))
    if name != name.strip(" "):
        raise InputError(Problem("MindRecord refuses a file name that starts or ends with a space", repr(name)))


def header_and_page_size(seq_length: int, expected_tokens: int) -> tuple[int, int]:
    """Sizes in bytes for a file of about `expected_tokens`: small ones for small files, a page fitting any row."""
    header, page = _SMALL if expected_tokens < 256 * _MIB else _LARGE
    row = 4 * (seq_length + 1)
    while page < row + 64:
        page *= 2
    return header, page


class MindRecordWriter:
    """Writes one MindRecord file of rows `input_ids`, int32 (seq_length + 1).

    The bytes depend on the rows, their number and the file's base name only, not on how they are batched.

    Args:
        path: the file; `<path>.db` appears beside it. Neither may exist.
        seq_length: a row holds one token more.
        expected_tokens: rough size of the whole file, for the size of its header and pages.

    Raises:
        InputError: a name that MindRecord refuses.
        RunError: the disk is full, or MindRecord fails otherwise; what there is of the file is of no use then.
    """

    def __init__(self, path: str | Path, seq_length: int, expected_tokens: int):
        from mindspore.mindrecord import FileWriter

        self.path = Path(path)
        check_file_name(self.path.name)
        self.rows = 0
        self._width = seq_length + 1
        self._header, self._page = header_and_page_size(seq_length, expected_tokens)
        self._batch = max(1, _WRITE_BYTES // (4 * self._width))
        self._writer = FileWriter(str(self.path), shard_num=1)
        self._writer.set_header_size(self._header)
        self._writer.set_page_size(self._page)
        self._writer.add_schema({COLUMN: {"type": "int32", "shape": [-1]}}, "msllm token rows")

    def write(self, rows: np.ndarray) -> None:
        """Append rows, int32 (any number, seq_length + 1)."""
        if rows.dtype != np.int32 or rows.ndim != 2 or rows.shape[1] != self._width:
            raise ValueError(f"rows ({rows.dtype} {rows.shape}) must be int32 (any, {self._width})")
        self._refuse_overflow(self.rows + len(rows))
        for start in range(0, len(rows), self._batch):
            batch = [{COLUMN: row} for row in rows[start : start + self._batch]]
            handed = len(batch)
            with _explained(self.path):
                self._writer.write_raw_data(batch)
            if len(batch) != handed:
                raise RunError(f"{self.path}: MindRecord refused {handed - len(batch)} rows; see its warning above")
            self.rows += handed

    def commit(self) -> None:
        """Write header and index, and check that every row has arrived."""
        with _explained(self.path):
            self._writer.commit()
        written = count_rows(self.path)
        if written != self.rows:
            raise RunError(f"{self.path}: MindRecord wrote {written} of {self.rows} rows")
        umask = os.umask(0)
        os.umask(umask)
        for file in (self.path, index_of(self.path)):
            os.chmod(file, 0o666 & ~umask)

    def _refuse_overflow(self, rows: int) -> None:
        rows_per_page = self._page // (4 * self._width + 64)
        pages = 2 + rows // rows_per_page
        if pages * _HEADER_BYTES_PER_PAGE > self._header:
            raise RunError(
                f"{self.path}: {rows} rows are more than one MindRecord file of this kind can hold; "
                f"divide the input into more shards"
            )


def index_of(path: str | Path) -> Path:
    """The index that belongs to a MindRecord file."""
    path = Path(path)
    return path.with_name(path.name + INDEX_SUFFIX)


def count_rows(path: str | Path) -> int:
    """Rows that the index of a MindRecord file lists; no MindSpore needed.

    Raises:
        RunError: the index is missing or is no readable SQLite file.
    """
    index = index_of(path)
    try:
        connection = sqlite3.connect(f"{index.resolve().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            return int(connection.execute("SELECT count(*) FROM INDEXES").fetchone()[0])
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise RunError(f"{index}: not the index of a MindRecord file ({error})") from None


def read_rows(files: Sequence[str], indices: Sequence[int] | None = None) -> Iterator[np.ndarray]:
    """Yield rows, int32 (seq_length + 1), in order; `indices` count over all the files, None means every row.

    For tools: a training run reads through `msllm.data.dataset`.

    Raises:
        RunError: MindSpore cannot read a file.
    """
    import mindspore.dataset as ds

    sampler = None if indices is None else ds.SubsetSampler(list(indices))
    try:
        # A list, always: MindSpore takes a plain string as a pattern of shard names.
        rows = ds.MindDataset(
            list(files),
            columns_list=[COLUMN],
            num_parallel_workers=1,
            shuffle=None if sampler else False,
            sampler=sampler,
        )
        for row in rows.create_dict_iterator(num_epochs=1, output_numpy=True):
            yield row[COLUMN]
    except RuntimeError as error:
        raise RunError(f"{_common(files)}: MindSpore cannot read the rows: {_first_line(error)}") from None


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn MindRecord's exceptions into RunError with the path, the free space and what to do."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        free = shutil.disk_usage(path.parent).free
        if "No free disk" in str(error) or free < 16 * _MIB:
            raise RunError(
                f"{path}: disk full: {free / _MIB:.0f} MiB free (MindRecord stops at 10); "
                f"free some space and run the same command again"
            ) from None
        raise RunError(f"{path}: MindRecord cannot write: {_first_line(error)} ({free / _MIB:.0f} MiB free)") from None


def _first_line(error: BaseException) -> str:
    """The line of MindSpore's many that says what happened."""
    lines = [line.strip() for line in str(error).splitlines()]
    for line in lines:
        if line.startswith("[ERROR]"):
            return line.removeprefix("[ERROR]").strip()
    return next((line for line in lines if line), type(error).__name__)


def _common(files: Sequence[str]) -> str:
    return str(files[0]) if len(files) == 1 else os.path.dirname(str(files[0]))
