from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from msllm.data.mindrecord import (
    MAX_SEQ_LENGTH,
    MindRecordWriter,
    check_file_name,
    count_rows,
    header_and_page_size,
    index_of,
    read_rows,
)
from msllm.errors import InputError, RunError


def make_rows(count: int, seq_length: int = 16, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 32000, (count, seq_length + 1)).astype(np.int32)


def write(path: Path, *batches: np.ndarray) -> None:
    path.parent.mkdir(exist_ok=True)
    writer = MindRecordWriter(path, 16, expected_tokens=1000)
    for batch in batches:
        writer.write(batch)
    writer.commit()


def test_rows_come_back_in_order_over_several_files(tmp_path: Path) -> None:
    rows = make_rows(10)
    write(tmp_path / "a.mindrecord", rows[:6])
    write(tmp_path / "b.mindrecord", rows[6:])
    files = [str(tmp_path / "a.mindrecord"), str(tmp_path / "b.mindrecord")]
    assert np.array_equal(np.stack(list(read_rows(files))), rows)
    assert np.array_equal(np.stack(list(read_rows(files, [9, 0, 6]))), rows[[9, 0, 6]])
    assert next(iter(read_rows(files))).dtype == np.int32
    assert count_rows(files[0]) == 6


def test_bytes_do_not_depend_on_batches_or_folder(tmp_path: Path) -> None:
    rows = make_rows(300)
    write(tmp_path / "one" / "s.mindrecord", rows)
    write(tmp_path / "two" / "s.mindrecord", *np.array_split(rows, 7))
    for suffix in ("", ".db"):
        digests = {
            hashlib.sha256((tmp_path / folder / f"s.mindrecord{suffix}").read_bytes()).digest()
            for folder in ("one", "two")
        }
        assert len(digests) == 1


def test_moved_pair_stays_readable(tmp_path: Path) -> None:
    rows = make_rows(5)
    write(tmp_path / "old" / "s.mindrecord", rows)
    (tmp_path / "new").mkdir()
    for name in ("s.mindrecord", "s.mindrecord.db"):
        os.replace(tmp_path / "old" / name, tmp_path / "new" / name)
    assert np.array_equal(np.stack(list(read_rows([str(tmp_path / "new" / "s.mindrecord")]))), rows)


def test_mode_follows_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write(tmp_path / "s.mindrecord", make_rows(1))
    finally:
        os.umask(before)
    assert (tmp_path / "s.mindrecord").stat().st_mode & 0o777 == 0o640
    assert index_of(tmp_path / "s.mindrecord").stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("rows", [make_rows(2).astype(np.int64), make_rows(2, seq_length=15), make_rows(2)[0]])
def test_rows_that_mindrecord_would_drop_silently_are_refused(tmp_path: Path, rows: np.ndarray) -> None:
    writer = MindRecordWriter(tmp_path / "s.mindrecord", 16, 100)
    with pytest.raises(ValueError, match="must be int32"):
        writer.write(rows)


@pytest.mark.parametrize("name", ["a:b", "a*b", "a?b", 'a"b', "a<b", "a|b", "a`b", "a&b", "a'b", "a;b", " a", "a "])
def test_names_that_mindrecord_refuses(name: str) -> None:
    with pytest.raises(InputError, match="MindRecord refuses"):
        check_file_name(name)


def test_unusual_names_that_mindrecord_takes(tmp_path: Path) -> None:
    check_file_name("a b.mindrecord")
    folder = tmp_path / "an odd & 'folder'; 语料"
    write(folder / "中文 a.mindrecord", make_rows(2))
    assert len(list(read_rows([str(folder / "中文 a.mindrecord")]))) == 2


def test_small_files_are_small(tmp_path: Path) -> None:
    write(tmp_path / "s.mindrecord", make_rows(1))
    assert (tmp_path / "s.mindrecord").stat().st_size < 6 << 20


@pytest.mark.parametrize("seq_length", [1, 4096, 1 << 20, MAX_SEQ_LENGTH])
@pytest.mark.parametrize("tokens", [1, 1 << 40])
def test_a_page_holds_a_row_and_is_legal(seq_length: int, tokens: int) -> None:
    header, page = header_and_page_size(seq_length, tokens)
    assert 16 << 10 <= header <= 128 << 20
    assert 4 * (seq_length + 1) <= page <= 256 << 20
    assert page % 4 == 0


def test_long_rows(tmp_path: Path) -> None:
    seq_length = (2 << 20) - 1  # more than a page of the usual size
    writer = MindRecordWriter(tmp_path / "s.mindrecord", seq_length, 100)
    rows = make_rows(2, seq_length)
    writer.write(rows)
    writer.commit()
    assert np.array_equal(np.stack(list(read_rows([str(tmp_path / "s.mindrecord")]))), rows)


def test_more_rows_than_the_header_can_describe_are_refused_early(tmp_path: Path) -> None:
    writer = MindRecordWriter(tmp_path / "s.mindrecord", 16, 100)
    writer.rows = 1 << 40
    with pytest.raises(RunError, match="more shards"):
        writer.write(make_rows(1))


def test_missing_or_foreign_index(tmp_path: Path) -> None:
    write(tmp_path / "s.mindrecord", make_rows(2))
    index_of(tmp_path / "s.mindrecord").write_bytes(b"no sqlite here")
    with pytest.raises(RunError, match=r"s\.mindrecord\.db"):
        count_rows(tmp_path / "s.mindrecord")
    index_of(tmp_path / "s.mindrecord").unlink()
    with pytest.raises(RunError, match=r"s\.mindrecord\.db"):
        count_rows(tmp_path / "s.mindrecord")


def test_unreadable_file_is_a_run_error(tmp_path: Path) -> None:
    write(tmp_path / "s.mindrecord", make_rows(2))
    (tmp_path / "s.mindrecord").write_bytes(b"x" * 100)
    with pytest.raises(RunError, match="MindSpore cannot read"):
        list(read_rows([str(tmp_path / "s.mindrecord")]))
