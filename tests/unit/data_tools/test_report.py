"""Results in words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from data_tools import report
from data_tools.convert import ConvertSummary
from data_tools.inspect import inspect
from data_tools.train_tokenizer import TrainSummary
from data_tools.verify import verify
from msllm.data.manifest import read_manifest


@pytest.fixture
def summary(dataset: Path) -> ConvertSummary:
    return ConvertSummary(
        output=dataset,
        manifest=read_manifest(dataset),
        reused=False,
        resumed_shards=0,
        input_files=1,
        input_bytes=2_000_000,
        seconds=2.0,
        ignored=[],
        notices={},
        tokenized=None,
    )


def test_a_conversion_tells_counts_and_rates(summary: ConvertSummary, capsys) -> None:
    report.show_conversion(summary)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("read     1 file, 2.0 MB: 200 documents, ")
    assert f"{summary.manifest.rows:,} rows of 32 + 1 tokens in 3 files" in lines[1]
    assert lines[2].startswith("took     2.0 s (1.0 MB/s, ")


def test_one_is_not_many(summary: ConvertSummary, capsys) -> None:
    shards = summary.manifest.shards[:1]
    options = summary.manifest.options.model_copy(update={"shards": 2})
    manifest = summary.manifest.model_copy(
        update={"rows": 1, "documents": 1, "tokens": 1, "padding_tokens": 1, "shards": shards, "options": options}
    )
    report.show_conversion(replace(summary, manifest=manifest, resumed_shards=1))
    out = capsys.readouterr().out
    assert "1 document, 1 token with an EOD" in out and "1 row of 32 + 1 tokens in 1 file\n" in out
    assert "(1 shard finished before)" in out and "padded   1 EOD token at" in out
    assert "note     1 shard without a row" in out


def test_what_was_left_out_is_told(summary: ConvertSummary, capsys) -> None:
    ignored = [(f"{name}.bin", "unknown extension") for name in "abcd"]
    manifest = summary.manifest.model_copy(update={"skipped": {"broken JSON": 1200}, "dropped_tokens": 3})
    report.show_conversion(replace(summary, manifest=manifest, ignored=ignored, notices={"blank lines": 2}))
    out = capsys.readouterr().out
    assert "skipped  1,200 x broken JSON (--on-error skip)" in out and "dropped  3 tokens at" in out
    assert "note     2 blank lines" in out and "ignored  4 (unknown extension): a.bin, b.bin, c.bin ..." in out


def test_a_dataset_that_was_there_is_said_to_be(summary: ConvertSummary, capsys) -> None:
    report.show_conversion(replace(summary, reused=True))
    assert capsys.readouterr().out.startswith("already converted: ")


def test_a_tokenizer_tells_what_it_learned_from(tmp_path: Path, capsys) -> None:
    report.show_training(TrainSummary(tmp_path / "a.model", 400, "f" * 64, 1, 1, True, {"empty document": 2}, 3.0))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "read   a sample of 1 document, 1 character"
    assert lines[-1] == "skipped 2 x empty document (--on-error skip)"


def test_an_inspection_shows_facts_and_rows(dataset: Path, capsys) -> None:
    report.show_inspection(inspect(dataset, rows=1, start=2))
    out = capsys.readouterr().out
    assert "in 3 files, " in out and "sources    1 file\n" in out and "\nrow 2\n" in out


def test_a_verification_names_files_or_says_whole(copy: Path, capsys) -> None:
    (copy / "notes.txt").write_text("")
    report.show_verification(verify(copy, deep=True))
    out = capsys.readouterr().out
    assert "notes.txt: not part of the dataset, does no harm" in out and ": whole (8 files, " in out
    (copy / "tokenizer.model").unlink()
    report.show_verification(verify(copy))
    assert "1 file damaged of 8 files" in capsys.readouterr().out
