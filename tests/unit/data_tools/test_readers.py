from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from data_tools import readers
from data_tools.readers import Fault, Item, Notice, Piece, UnitReader
from data_tools.sources import find_sources
from data_tools.units import divide, find_units


def read(path: Path, key: str = "text") -> list[Item]:
    (units,) = divide(find_units(find_sources([path]).sources, key), 1)
    items: list[Item] = []
    counted: list[int] = []
    for unit in units:
        reader = UnitReader(unit, key, counted.append)
        items += list(reader)
        assert reader.sha256 == hashlib.sha256(path.read_bytes()[unit.start : unit.end]).hexdigest()
    if path.suffix != ".parquet":
        assert sum(counted) == path.stat().st_size
    return items


def texts(items: list[Item]) -> list[str]:
    """Whole documents, from their pieces."""
    found, part = [], ""
    for item in items:
        if isinstance(item, Piece):
            part += item.text
            if item.last:
                found.append(part)
                part = ""
    assert part == ""
    return found


def faults(items: list[Item]) -> list[tuple[str, int]]:
    return [(item.kind, item.line) for item in items if isinstance(item, Fault)]


def notices(items: list[Item]) -> list[str]:
    return [item.kind for item in items if isinstance(item, Notice)]


def jsonl(*values: object) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def test_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(
        jsonl({"text": "one", "id": 1}, {"id": 2, "text": "two\nlines"}) + b'{"text":"no newline at the end"}'
    )
    assert texts(read(path)) == ["one", "two\nlines", "no newline at the end"]


def test_every_bad_line_of_jsonl_is_named_by_kind_and_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    lines = [
        b'{"text": "good"}',
        b'{"text": "cut',
        b'"just a string"',
        b"[1]",
        b'{"content": "other key"}',
        b'{"text": 3}',
        b'{"text": null}',
        b'{"text": "\xff\xfe"}',
        b'{"text": "half \\ud83d"}',
        b'{"text": "nul \\u0000"}',
        b'{"text": "raw \x00"}',
        b'{"text": ""}',
        b'{"text": " \\n\\t"}',
        b"",
        b"  ",
        b'{"text": "NaN is Python\'s", "score": NaN}\r',
        b"[" * 5000,
    ]
    path.write_bytes(b"\n".join(lines) + b"\n")
    items = read(path)
    assert texts(items) == ["good", "NaN is Python's"]
    assert faults(items) == [
        (readers.BROKEN_JSON, 2),
        (readers.NOT_AN_OBJECT, 3),
        (readers.NOT_AN_OBJECT, 4),
        (readers.MISSING_KEY, 5),
        (readers.NOT_A_STRING, 6),
        (readers.NOT_A_STRING, 7),
        (readers.INVALID_UTF8, 8),
        (readers.SURROGATE, 9),
        (readers.NUL, 10),
        (readers.NUL, 11),
        (readers.EMPTY, 12),
        (readers.EMPTY, 13),
        (readers.BROKEN_JSON, 17),
    ]
    assert notices(items) == [readers.BLANK_LINE] * 2
    assert {kind for kind, _ in faults(items)} <= set(readers.FAULT_KINDS)


def test_byte_order_mark_and_crlf_of_jsonl_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + jsonl({"text": "a"}, {"text": "b"}).replace(b"\n", b"\r\n"))
    items = read(path)
    assert texts(items) == ["a", "b"] and notices(items) == [readers.BYTE_ORDER_MARK]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.txt"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_is_one_fault_that_says_what_to_do(tmp_path: Path, name: str, encoding: str) -> None:
    path = tmp_path / name
    path.write_bytes(("\ufeff" + '{"text": "a"}\n' * 3).encode(encoding))
    (fault,) = read(path)
    assert isinstance(fault, Fault) and fault.kind == readers.UTF16 and "iconv" in fault.detail


def test_utf16_lines_in_several_units_are_still_one_fault(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(('{"text": "a"}\n' * 100).encode("utf-16"))
    found = [
        item
        for part in divide(find_units(find_sources([path]).sources, "text"), 4)
        for unit in part
        for item in UnitReader(unit, "text")
    ]
    assert faults(found) == [(readers.UTF16, 0)]


def test_text_file_is_one_document_kept_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("\ufeffone\r\n\n  two \n".encode())
    items = read(path)
    assert texts(items) == ["one\r\n\n  two \n"]
    assert notices(items) == [readers.BYTE_ORDER_MARK, readers.CRLF]


def test_long_text_comes_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "PIECE_CHARS", 1000)
    monkeypatch.setattr("data_tools.streams.BLOCK", 777)
    text = "早 x\n" * 2000
    path = tmp_path / "a.md"
    path.write_text(text)
    items = read(path)
    assert len(items) > 10 and texts(items) == [text]


@pytest.mark.parametrize(
    ("content", "kind", "line"),
    [
        (b"", readers.EMPTY, 0),
        (b" \n\n", readers.EMPTY, 0),
        (b"one\ntwo\n\xff\n", readers.INVALID_UTF8, 3),
        (b"one\n\xe4\xbd", readers.INVALID_UTF8, 2),
        (b"one\x00two", readers.NUL, 0),
    ],
)
def test_unusable_text_file_is_one_fault_and_gives_no_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, kind: str, line: int
) -> None:
    path = tmp_path / "a.txt"
    for size in (2, 4_000_000):  # in pieces, and whole
        monkeypatch.setattr(readers, "PIECE_CHARS", size)
        path.write_bytes(content)
        items = read(path)
        assert faults(items) == [(kind, line)] and len(items) == 1


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("kind", [".jsonl", ".json", ".txt"])
def test_compressed_files(tmp_path: Path, suffix: str, kind: str) -> None:
    content = jsonl({"text": "one"}, {"text": "two"})
    compress = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    path = tmp_path / f"a{kind}{suffix}"
    # Two members, as `cat a.gz b.gz` makes them.
    path.write_bytes(compress(content[:10]) + compress(content[10:]))
    assert texts(read(path)) == ([content.decode()] if kind == ".txt" else ["one", "two"])


def test_zeros_behind_a_gzip_stream_are_padding(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(jsonl({"text": "one"})) + bytes(300_000))
    assert texts(read(path)) == ["one"] and not faults(read(path))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_cut_compressed_file_is_a_fault_and_gives_what_came_before(tmp_path: Path, suffix: str) -> None:
    compress = gzip.compress if suffix == ".gz" else zstandard.ZstdCompressor().compress
    lines = [{"text": hashlib.sha256(str(number).encode()).hexdigest()} for number in range(20_000)]
    path = tmp_path / f"a.jsonl{suffix}"
    whole = compress(jsonl(*lines))
    path.write_bytes(whole[: len(whole) // 2])
    items = read(path)
    found = texts(items)
    assert faults(items) == [(readers.DAMAGED, 0)]
    assert found == [line["text"] for line in lines[: len(found)]]
    assert len(found) > 1000


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
@pytest.mark.parametrize("content", [b"", b"plain text", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"])
def test_file_that_is_not_compressed_as_its_name_says(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(content)
    assert faults(read(path)) == [(readers.DAMAGED, 0)]


def test_json_array_and_single_object(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps([{"text": "one"}, {"other": 1}, {"text": "\u4e8c"}], indent=1))
    items = read(path)
    assert texts(items) == ["one", "\u4e8c"] and [kind for kind, _ in faults(items)] == [readers.MISSING_KEY]
    path.write_text(json.dumps({"text": "one"}, indent=1))
    assert texts(read(path)) == ["one"]


def test_json_that_holds_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(jsonl({"text": "one"}, {"text": "two"}))
    assert texts(read(path)) == ["one", "two"]


def test_json_faults(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'[{"text": "one"},\n{"text": "\\ud800"},\n{"text": "cu')
    items = read(path)
    assert texts(items) == ["one"] and faults(items) == [(readers.SURROGATE, 2), (readers.BROKEN_JSON, 3)]
    path.write_bytes(b'[{"text": "one"},\n{"text": "\xff"}]')
    assert faults(read(path)) == [(readers.INVALID_UTF8, 2)]


@pytest.mark.parametrize(
    "kind", [pyarrow.string(), pyarrow.large_string(), pyarrow.dictionary(pyarrow.int32(), pyarrow.string())]
)
def test_parquet(tmp_path: Path, kind: pyarrow.DataType) -> None:
    path = tmp_path / "a.parquet"
    column = pyarrow.array(["one", None, "", "two", "n\x00"], pyarrow.string()).cast(kind)
    parquet.write_table(pyarrow.table({"content": column, "x": [1] * 5}), path, row_group_size=2)
    items = read(path, key="content")
    assert texts(items) == ["one", "two"]
    assert faults(items) == [(readers.NOT_A_STRING, 2), (readers.EMPTY, 3), (readers.NUL, 5)]


def test_parquet_with_invalid_utf8_and_damaged_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    bad = pyarrow.StringArray.from_buffers(
        2, pyarrow.py_buffer(b"\0\0\0\0\2\0\0\0\4\0\0\0"), pyarrow.py_buffer(b"ok\xff\xfe")
    )
    parquet.write_table(pyarrow.table({"text": bad}), path)
    items = read(path)
    assert texts(items) == ["ok"] and faults(items) == [(readers.INVALID_UTF8, 2)]
    content = bytearray(path.read_bytes())
    content[4:60] = b"\xff" * 56
    path.write_bytes(content)
    assert faults(read(path)) == [(readers.DAMAGED, 0)]


@settings(max_examples=80)
@given(
    content=st.lists(
        st.sampled_from(
            [b'{"text": "a"}', b"\n", b"\r\n", b"{", b'"', b"\xff", b"\x00", b"[", b" ", b"\xef\xbb\xbf", b"1"]
        )
    ).map(b"".join),
    name=st.sampled_from(["a.jsonl", "a.json", "a.txt", "a.jsonl.gz", "a.jsonl.zst"]),
)
def test_no_bytes_break_a_reader(fresh_folder: Callable[[], Path], content: bytes, name: str) -> None:
    path = fresh_folder() / name
    path.write_bytes(content)
    for item in read(path):
        if isinstance(item, Piece):
            item.text.encode()
            assert "\x00" not in item.text


@settings(max_examples=60)
@given(
    values=st.lists(st.text(min_size=1).filter(lambda text: not text.isspace() and "\x00" not in text), max_size=20),
    shards=st.integers(1, 5),
    ascii=st.booleans(),
)
def test_jsonl_gives_every_text_back_over_any_shards(
    fresh_folder: Callable[[], Path], values: list[str], shards: int, ascii: bool
) -> None:
    path = fresh_folder() / "a.jsonl"
    path.write_bytes(b"".join(json.dumps({"text": value}, ensure_ascii=ascii).encode() + b"\n" for value in values))
    parts = divide(find_units(find_sources([path]).sources, "text"), shards)
    found = [item for part in parts for unit in part for item in UnitReader(unit, "text")]
    assert texts(found) == values


def test_parquet_batches_with_a_broken_text_give_every_other_one_with_its_row(tmp_path: Path) -> None:
    data = pyarrow.array([b"one", b"\xff\xfe", None, "zwölf".encode()], pyarrow.binary())
    column = pyarrow.Array.from_buffers(pyarrow.string(), 4, data.buffers())
    for name, array in (("a", column), ("b", pyarrow.array(["one", "two", None, "zwölf"]).dictionary_encode())):
        parquet.write_table(pyarrow.table({"text": array}), tmp_path / f"{name}.parquet")
    broken, whole = read(tmp_path / "a.parquet"), read(tmp_path / "b.parquet")
    assert [item.line for item in broken] == [item.line for item in whole] == [1, 2, 3, 4]
    assert [type(item) for item in broken] == [Piece, Fault, Fault, Piece]
    assert [item.kind for item in broken[1:3]] == [readers.INVALID_UTF8, readers.NOT_A_STRING]
    assert [item.text for item in whole if isinstance(item, Piece)] == ["one", "two", "zwölf"]
