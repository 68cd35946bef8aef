from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from data_tools.readers import first_line
from data_tools.sources import Source, find_sources
from data_tools.units import Unit, default_shards, divide, find_units
from msllm.errors import InputError

MIB = 1 << 20


def lines_of(unit: Unit) -> bytes:
    content = Path(unit.source.path).read_bytes()
    return content[unit.start : unit.end]


@settings(max_examples=80)
@given(
    files=st.lists(
        st.lists(st.binary(max_size=30).map(lambda b: b.replace(b"\n", b"")), max_size=12), min_size=1, max_size=4
    ),
    shards=st.integers(1, 9),
    final_newline=st.booleans(),
)
def test_every_line_is_in_one_shard_in_order(
    fresh_folder: Callable[[], Path], files: list[list[bytes]], shards: int, final_newline: bool
) -> None:
    folder = fresh_folder()
    contents = []
    for number, lines in enumerate(files):
        content = b"\n".join(lines) + (b"\n" if final_newline else b"")
        (folder / f"{number}.jsonl").write_bytes(content)
        contents.append(content)
    parts = divide(find_units(find_sources([folder]).sources, "text"), shards)
    assert len(parts) == shards
    units = [unit for part in parts for unit in part]
    assert b"".join(map(lines_of, units)) == b"".join(contents)
    for unit in units:
        content = contents[int(Path(unit.source.path).stem)]
        assert unit.start == 0 or content[unit.start - 1 : unit.start] == b"\n"
        assert first_line(unit) == 1 + content[: unit.start].count(b"\n")


def test_large_file_of_lines_is_divided_evenly(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "x"}\n' * 10_000)
    parts = divide(find_units(find_sources([tmp_path]).sources, "text"), 7)
    sizes = [sum(unit.end - unit.start for unit in part) for part in parts]
    assert max(sizes) - min(sizes) <= 28


def test_one_line_larger_than_a_shard_stays_whole(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"x" * 3 * MIB + b"\nshort\n")
    parts = divide(find_units(find_sources([tmp_path]).sources, "text"), 5)
    assert [[(unit.start, unit.end) for unit in part] for part in parts if part] == [
        [(0, 3 * MIB + 1)],
        [(3 * MIB + 1, 3 * MIB + 7)],
    ]


def test_files_that_cannot_be_divided_go_whole_to_one_shard(tmp_path: Path) -> None:
    for number in range(8):
        (tmp_path / f"{number}.txt").write_bytes(b"x" * 1000)
    parts = divide(find_units(find_sources([tmp_path]).sources, "text"), 4)
    assert [[unit.source.name[-5:] for unit in part] for part in parts] == [
        ["0.txt", "1.txt"],
        ["2.txt", "3.txt"],
        ["4.txt", "5.txt"],
        ["6.txt", "7.txt"],
    ]


def test_more_shards_than_files_leaves_some_empty(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x")
    parts = divide(find_units(find_sources([tmp_path]).sources, "text"), 3)
    assert sorted(map(len, parts)) == [0, 0, 1]


def test_parquet_is_divided_between_row_groups(tmp_path: Path) -> None:
    table = pyarrow.table({"text": [f"document {number}" for number in range(100)], "other": list(range(100))})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=10)
    parts = divide(find_units(find_sources([tmp_path]).sources, "text"), 3)
    groups = [unit.row_groups for part in parts for unit in part]
    assert [part[0].row_groups[0] for part in parts if part and part[0].row_groups] == [0, 3, 7]
    assert groups[-1] and groups[-1][1] == 10
    assert all(len(part) == 1 for part in parts)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"content": ["a"]}, "no column 'text'.*its columns: content"),
        ({"text": [1]}, "must hold strings, it holds int64"),
    ],
)
def test_parquet_without_a_column_of_strings(tmp_path: Path, table: dict[str, list], message: str) -> None:
    parquet.write_table(pyarrow.table(table), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=message):
        divide(find_units(find_sources([tmp_path]).sources, "text"), 1)


def test_damaged_parquet(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 not really")
    with pytest.raises(InputError, match=r"a\.parquet: is not a Parquet file, or is damaged"):
        divide(find_units(find_sources([tmp_path]).sources, "text"), 1)


@pytest.mark.parametrize(
    ("size", "shards"),
    [
        (0, 1),
        (1, 1),
        (16 * MIB, 1),
        (16 * MIB + 1, 2),
        (1024 * MIB, 64),
        (64 * 512 * MIB, 64),
        (128 * 512 * MIB, 128),
        (1 << 50, 1000),
    ],
)
def test_default_number_of_shards(size: int, shards: int) -> None:
    lines = Source("/a.jsonl", "a.jsonl", "lines", "", size, 0)
    assert default_shards([Unit(lines, 0, size)]) == shards
    text = Source("/a.txt", "a.txt", "text", "", size, 0)
    assert default_shards([Unit(text, 0, size)]) == 1
    assert default_shards([Unit(text, 0, size)] * 3) == min(3, default_shards([Unit(lines, 0, 3 * size)]))
