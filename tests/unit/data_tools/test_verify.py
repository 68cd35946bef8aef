"""Every damage to a dataset is named by file and kind."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from data_tools.verify import verify
from msllm.data.manifest import manifest_text, read_manifest
from msllm.data.mindrecord import MindRecordWriter, index_of, read_rows
from msllm.errors import InputError
from msllm.files import sha256_of


def found(folder: Path, deep: bool = False) -> list[tuple[str, str]]:
    return [(damage.file, damage.kind) for damage in verify(folder, deep).damages]


def rewrite_manifest(folder: Path, **changes: object) -> None:
    """As a program that writes a wrong manifest would: with the right checksum."""
    manifest = read_manifest(folder).model_copy(update=changes)
    (folder / "manifest.json").write_text(manifest_text(manifest), encoding="utf-8")


def test_whole_dataset(dataset: Path) -> None:
    verification = verify(dataset, deep=True)
    assert verification.damages == () and verification.others == ()
    assert verification.rows_decoded == read_manifest(dataset).rows and verification.files == 8
    moved = dataset.parent / "moved"
    shutil.copytree(dataset, moved)
    assert found(moved, deep=True) == []


def test_missing_files(copy: Path) -> None:
    (copy / "shard-00000.mindrecord").unlink()
    (copy / "shard-00001.mindrecord.db").unlink()
    (copy / "tokenizer.model").unlink()
    assert found(copy) == [
        ("tokenizer.model", "missing"),
        ("shard-00000.mindrecord", "missing"),
        ("shard-00001.mindrecord.db", "missing"),
    ]


def test_doubled_and_stale_shards(copy: Path) -> None:
    shutil.copy(copy / "shard-00000.mindrecord", copy / "shard-00003.mindrecord")
    (copy / "shard-00009.mindrecord").write_bytes(b"old")
    (copy / "notes.txt").write_text("harmless")
    verification = verify(copy)
    assert [(damage.file, damage.kind) for damage in verification.damages] == [
        ("shard-00003.mindrecord", "double"),
        ("shard-00009.mindrecord", "stale"),
    ]
    assert "shard-00000.mindrecord" in verification.damages[0].detail and verification.others == ("notes.txt",)


def test_shard_replaced_by_another_one(copy: Path) -> None:
    for suffix in ("", ".db"):
        shutil.copy(copy / f"shard-00000.mindrecord{suffix}", copy / f"shard-00001.mindrecord{suffix}")
    assert found(copy) == [("shard-00001.mindrecord", "double"), ("shard-00001.mindrecord.db", "double")]


def test_file_listed_twice(copy: Path) -> None:
    manifest = read_manifest(copy)
    rewrite_manifest(copy, shards=(*manifest.shards, manifest.shards[0]))
    assert found(copy) == [("manifest.json", "double"), ("manifest.json", "manifest")]


def test_folder_that_is_no_dataset_is_wrong_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a dataset"):
        verify(tmp_path)


def test_row_counts_against_the_index(copy: Path) -> None:
    manifest = read_manifest(copy)
    first = manifest.shards[0].model_copy(update={"rows": manifest.shards[0].rows + 1})
    rewrite_manifest(copy, shards=(first, *manifest.shards[1:]), rows=manifest.rows + 1)
    assert found(copy) == [("shard-00000.mindrecord", "rows")]


@pytest.mark.parametrize(
    ("seq_length", "change", "message"),
    [
        (16, None, r"row 0 is int32 \(17,\), should be int32 \(33,\)"),
        (32, ("id", 500), "row 1 has the id 500, ids must be in 0..499"),
        (32, ("id", -1), "row 1 has the id -1"),
        (32, ("order", 0), "row 1 does not begin with the last token of the row before"),
        (32, ("ends", 0), "EOD tokens, should be at least"),
    ],
)
def test_deep_look_at_rows_that_a_wrong_program_wrote(
    copy: Path, seq_length: int, change: tuple[str, int] | None, message: str
) -> None:
    shard = copy / "shard-00000.mindrecord"
    rows = [row.copy() for row in read_rows([str(shard)])]
    for path in (shard, index_of(shard)):
        path.unlink()
    kind, value = change or ("", 0)
    if kind == "id":
        rows[1][5] = value
    elif kind == "order":
        rows[1], rows[2] = rows[2], rows[1]
    elif kind == "ends":
        for row in rows:
            row[row == 2] = 3
    writer = MindRecordWriter(shard, seq_length, 1000)
    for row in rows:
        writer.write(row[None, : seq_length + 1])
    writer.commit()
    manifest = read_manifest(copy)
    info = manifest.shards[0].model_copy(
        update={
            "bytes": shard.stat().st_size,
            "sha256": sha256_of(shard),
            "index_bytes": index_of(shard).stat().st_size,
            "index_sha256": sha256_of(index_of(shard)),
        }
    )
    rewrite_manifest(copy, shards=(info, *manifest.shards[1:]))
    assert found(copy) == []
    (damage,) = verify(copy, deep=True).damages
    assert damage.file == "shard-00000.mindrecord"

    assert re.search(message, damage.detail)
