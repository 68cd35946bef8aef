"""Bytes of inputs: in blocks, hashed, decompressed."""

from __future__ import annotations

import gzip
import hashlib
import os
import threading
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from data_tools import streams
from data_tools.readers import UnitReader
from data_tools.sources import Compression, find_sources
from data_tools.streams import DamagedStream, HashedRange, blocks
from data_tools.units import Unit

PACK = {"gzip": gzip.compress, "zstd": zstandard.compress, "": bytes}


def read(path: Path, compression: Compression, start: int = 0) -> bytes:
    with HashedRange(str(path), start, path.stat().st_size) as raw:
        return b"".join(blocks(raw, compression))


@given(start=st.integers(0, 50), size=st.integers(0, 50), step=st.integers(1, 60))
def test_a_range_gives_its_bytes_and_their_hash_however_it_is_read(fresh_folder, start, size, step) -> None:
    content = bytes(range(120))
    path = fresh_folder() / "a"
    path.write_bytes(content)
    counted: list[int] = []
    with HashedRange(str(path), start, start + size, counted.append) as raw:
        first = raw.read(step)
        assert first == content[start : start + size][:step]
        assert raw.finish() == hashlib.sha256(content[start : start + size]).hexdigest()
    assert sum(counted) == size


@pytest.mark.parametrize("compression", PACK)
def test_frames_that_follow_one_another_are_one_text(tmp_path: Path, compression: Compression, monkeypatch) -> None:
    monkeypatch.setattr(streams, "COMPRESSED_BLOCK", 7)
    parts = [b"one " * 100, b"two", b"three " * 1000]
    (tmp_path / "a").write_bytes(b"".join(PACK[compression](part) for part in parts))
    assert read(tmp_path / "a", compression) == b"".join(parts)


@pytest.mark.parametrize(
    ("compression", "content", "message"),
    [
        ("gzip", b"", "an empty file is no gzip stream"),
        ("zstd", b"", "an empty file is no zstd stream"),
        ("gzip", gzip.compress(b"text" * 99, mtime=0)[:-9], "the gzip stream is cut"),
        ("zstd", zstandard.compress(b"text" * 99)[:-2], "the zstd stream is cut"),
        ("gzip", b"plain text", "not gzip, or damaged"),
        ("zstd", b"plain text", "not zstd, or damaged"),
        ("gzip", gzip.compress(b"text", mtime=0) + b"rest", "not gzip, or damaged"),
    ],
)
def test_what_cannot_be_decompressed_is_said(tmp_path: Path, compression: Compression, content, message) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(DamagedStream, match=message):
        read(tmp_path / "a", compression)


@pytest.mark.parametrize("compression", ["gzip", "zstd"])
def test_a_stream_that_is_left_early_leaves_no_thread_and_hashes_the_whole_file(
    tmp_path: Path, compression: Compression
) -> None:
    pieces = [os.urandom(100_000) for _ in range(30)]
    packed = b"".join(PACK[compression](piece) for piece in pieces)
    (tmp_path / "a").write_bytes(packed)
    counted: list[int] = []
    before = threading.active_count()
    with HashedRange(str(tmp_path / "a"), 0, len(packed), counted.append) as raw:
        stream = blocks(raw, compression)
        assert pieces[0].startswith(next(stream)[:1000])
        stream.close()
        assert threading.active_count() == before
        assert raw.finish() == hashlib.sha256(packed).hexdigest()
    assert sum(counted) == len(packed)


def test_reading_ahead_ends_where_the_reader_is_not_asked_any_more(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"text": "x"}\n' * 2_000_000))
    (source,) = find_sources([tmp_path / "a.jsonl.gz"]).sources
    before = threading.active_count()
    reader = iter(UnitReader(Unit(source, 0, source.size), "text"))
    assert next(reader).text == "x"
    reader.close()
    assert threading.active_count() == before
