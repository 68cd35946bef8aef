"""What happens to an output that is there already."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora import content, write_jsonl

from data_tools.convert import ConvertSummary
from msllm.data.manifest import read_manifest
from msllm.errors import InputError

Convert = Callable[..., ConvertSummary]


def test_finished_output_is_reused(tmp_path: Path, run: Convert, documents: list[str]) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    first = run([source])
    before = content(first.output)
    again = run([source])
    assert again.reused and not first.reused and again.manifest.model_dump() == first.manifest.model_dump()
    source.touch()  # newer than the output, but the same
    assert run([source], on_error="skip", workers=2).reused
    assert content(first.output) == before and not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seq_length": 64}, "seq_length is 32, would be 64"),
        ({"shards": 3}, "shards is 2, would be 3"),
        ({"tail": "drop"}, "tail is pad, would be drop"),
        ({"eod_token": "<s>"}, "eod_token is None, would be <s>"),
    ],
)
def test_output_made_otherwise_is_refused(
    tmp_path: Path, run: Convert, documents: list[str], options: dict[str, Any], message: str
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    before = content(run([source], shards=2).output)
    with pytest.raises(InputError, match=f"{message}.*--overwrite"):
        run([source], **({"shards": 2} | options))
    assert content(tmp_path / "out") == before


def test_output_of_changed_input_is_refused_or_overwritten(tmp_path: Path, run: Convert, documents: list[str]) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    run([source], shards=2)
    text = source.read_bytes()
    source.write_bytes(text[:-10] + b"zzz" + text[-7:])  # of the same size
    with pytest.raises(InputError, match=r"the input files changed \(a\.jsonl\)"):
        run([source], shards=2)
    write_jsonl(source, documents[:150])
    with pytest.raises(InputError, match="the input files changed"):
        run([source], shards=2)
    summary = run([source], shards=1, overwrite=True)
    assert not summary.reused and read_manifest(tmp_path / "out").documents == 150
    assert "shard-00001.mindrecord" not in content(tmp_path / "out")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "out"]


def test_damaged_output_is_not_reused(tmp_path: Path, run: Convert, documents: list[str]) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    run([source], shards=1)
    shard = tmp_path / "out" / "shard-00000.mindrecord"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"shard-00000\.mindrecord is missing or damaged"):
        run([source], shards=1)
    (tmp_path / "out" / "manifest.json").write_text("{")
    with pytest.raises(InputError, match="--overwrite"):
        run([source], shards=1)
    assert not run([source], shards=1, overwrite=True).reused


def test_folder_of_others_is_never_touched(tmp_path: Path, run: Convert, documents: list[str]) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    (tmp_path / "out").mkdir()
    assert run([source]).manifest.rows  # an empty folder may be taken
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"not of the dataset: notes\.txt"):
        run([source], seq_length=16, overwrite=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("mine")
    with pytest.raises(InputError, match="not a dataset"):
        run([source], output=tmp_path / "other", overwrite=True)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is not a folder"):
        run([source], output=tmp_path / "file", overwrite=True)
