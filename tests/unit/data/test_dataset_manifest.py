from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msllm.data.manifest import (
    ConvertOptions,
    Manifest,
    ShardInfo,
    SourceInfo,
    TokenizerInfo,
    manifest_text,
    read_manifest,
    write_manifest,
)
from msllm.errors import InputError

SHA = "0" * 64


def make_manifest() -> Manifest:
    shards = tuple(
        ShardInfo(
            file=f"shard-{number:05d}.mindrecord",
            rows=3,
            tokens=25,
            documents=2,
            padding_tokens=0,
            dropped_tokens=0,
            forced_cuts=0,
            max_token_id=99,
            bytes=1000,
            sha256=SHA,
            index_bytes=100,
            index_sha256=SHA,
        )
        for number in range(2)
    )
    return Manifest(
        seq_length=8,
        rows=6,
        tokens=50,
        documents=4,
        padding_tokens=0,
        dropped_tokens=0,
        eod_id=2,
        vocab_size=100,
        max_token_id=99,
        tokenizer=TokenizerInfo(type="sentencepiece", file="tokenizer.model", fingerprint=SHA),
        options=ConvertOptions(seq_length=8, shards=2),
        versions={"msllm": "0.1.0"},
        skipped={"broken JSON": 1},
        shards=shards,
        sources=(SourceInfo(file="语料/a.txt", start=0, end=10, sha256=SHA, shard=0),),
    )


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    write_manifest(tmp_path, make_manifest())
    manifest = read_manifest(tmp_path)
    assert manifest.model_dump() == make_manifest().model_dump()
    assert manifest.files() == [str(tmp_path / f"shard-0000{number}.mindrecord") for number in range(2)]


def test_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        read_manifest(tmp_path / "nothing")


def test_folder_without_manifest_is_no_dataset(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"not a dataset.*manifest\.json"):
        read_manifest(tmp_path)


def test_unfinished_conversion_is_named(tmp_path: Path) -> None:
    (tmp_path / "corpus.partial").mkdir()
    with pytest.raises(InputError, match="conversion not finished.*again"):
        read_manifest(tmp_path / "corpus")


def test_file_in_place_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("")
    with pytest.raises(InputError, match="is a file"):
        read_manifest(tmp_path / "x")


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": "other"}', "\xff"])
def test_file_that_is_no_manifest(tmp_path: Path, content: str) -> None:
    (tmp_path / "manifest.json").write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match=r"manifest\.json"):
        read_manifest(tmp_path)


def test_other_version_is_refused(tmp_path: Path) -> None:
    fields = json.loads(manifest_text(make_manifest())) | {"version": 2}
    (tmp_path / "manifest.json").write_text(json.dumps(fields))
    with pytest.raises(InputError, match=r"version \(2\) must be 1"):
        read_manifest(tmp_path)


def test_edited_value_is_noticed(tmp_path: Path) -> None:
    text = manifest_text(make_manifest())
    (tmp_path / "manifest.json").write_text(text.replace('"rows": 6', '"rows": 7'), encoding="utf-8")
    with pytest.raises(InputError, match="checksum"):
        read_manifest(tmp_path)


@settings(max_examples=200)
@given(data=st.data())
def test_any_changed_byte_is_noticed(fresh_folder: Callable[[], Path], data: st.DataObject) -> None:
    folder = fresh_folder()
    content = bytearray(manifest_text(make_manifest()).encode())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    (folder / "manifest.json").write_bytes(bytes(content))
    with pytest.raises(InputError):
        read_manifest(folder)


@settings(max_examples=50)
@given(length=st.integers(0, 2000))
def test_cut_manifest_is_noticed(fresh_folder: Callable[[], Path], length: int) -> None:
    folder = fresh_folder()
    content = manifest_text(make_manifest()).encode()
    (folder / "manifest.json").write_bytes(content[: min(length, len(content) - 1)])
    with pytest.raises(InputError):
        read_manifest(folder)
