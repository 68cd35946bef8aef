"""What is no text is said to be what it is, once, whatever its name says."""

from __future__ import annotations

import gzip
import io
import random
import zipfile
from pathlib import Path

import pyarrow
import pytest
import zstandard
from pyarrow import parquet

from data_tools import readers
from data_tools.foreign import HEAD, foreign
from data_tools.readers import Fault, UnitReader
from data_tools.sources import find_sources
from data_tools.units import divide, find_units

LINES = b'{"text": "a b c"}\n' * 50


def parquet_bytes() -> bytes:
    file = io.BytesIO()
    parquet.write_table(pyarrow.table({"text": ["a"] * 9}), file)
    return file.getvalue()


def zip_bytes() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "a")
    return file.getvalue()


FOREIGN = {
    "gzip": (gzip.compress(LINES), "it is gzip data by its first bytes; rename it to {}.gz"),
    "zstd": (zstandard.compress(LINES), "it is zstd data by its first bytes; rename it to {}.zst"),
    "parquet": (parquet_bytes(), "it is a Parquet file by its first bytes; rename it to a.parquet"),
    "zip": (zip_bytes(), "it is a zip archive by its first bytes; extract the text first"),
    "random": (random.Random(1).randbytes(5000), "its first bytes are binary data"),
}


def read(path: Path, parts: int = 1) -> list[readers.Item]:
    found = divide(find_units(find_sources([path]).sources, "text"), parts)
    return [item for units in found for unit in units for item in UnitReader(unit, "text")]


@pytest.mark.parametrize("name", ["a.jsonl", "a.txt", "a.json", "a.md"])
@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_no_text_is_one_fault_that_says_what_it_is(tmp_path: Path, name: str, kind: str) -> None:
    content, message = FOREIGN[kind]
    (tmp_path / name).write_bytes(content)
    assert read(tmp_path / name, parts=3) == [Fault(readers.BINARY, message.format(name), 0)]


def test_what_is_compressed_twice_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(gzip.compress(LINES)))
    (fault,) = read(tmp_path / "a.jsonl.gz")
    message = "what is compressed in it is gzip data by its first bytes; extract the text first"
    assert fault == Fault(readers.BINARY, message, 0)


@pytest.mark.parametrize("text", ["PAR1S", "BZhang", "%PDF-1.4 is how a PDF begins", "PK", "", "早" * HEAD])
def test_a_text_may_begin_as_other_files_do(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.txt").write_text("x")
    (source,) = find_sources([tmp_path / "a.txt"]).sources
    assert foreign(text.encode()[:HEAD], source) is None
    assert foreign(b"a few \xff wrong bytes \x00 in " + b"a line " * 10, source) is None
