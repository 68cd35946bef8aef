"""verify, inspect and train-tokenizer, and the commands that call them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from data_tools.convert import convert
from data_tools.inspect import inspect
from data_tools.plan import ConvertRequest
from data_tools.train_tokenizer import TrainRequest, train_tokenizer
from data_tools.verify import verify
from msllm.commands.data import app
from msllm.data.manifest import manifest_text, read_manifest
from msllm.data.mindrecord import MindRecordWriter, index_of, read_rows
from msllm.data.tokenizer import load_tokenizer
from msllm.errors import InputError
from msllm.files import sha256_of


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return folder


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, corpus: Path, tokenizer_file: Path) -> Path:
    output = tmp_path_factory.mktemp("data") / "set"
    convert(ConvertRequest([corpus], tokenizer_file, 32, output, shards=3, workers=2), quiet=True)
    return output


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "set"))


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
    import re

    assert re.search(message, damage.detail)


def test_inspect_decodes_rows_and_counts_tokens(dataset: Path, documents: list[str]) -> None:
    inspection = inspect(dataset, rows=2, start=0)
    assert [row.index for row in inspection.rows] == [0, 1]
    assert (
        inspection.rows[0].documents[0].strip() in documents[0]
        or documents[0].strip() in inspection.rows[0].documents[0]
    )
    assert all(len(row.ids) == 33 for row in inspection.rows)
    statistics = inspection.statistics
    assert statistics.rows == read_manifest(dataset).rows and 0 < statistics.distinct <= 500
    assert sum(count for _, _, count in statistics.frequent) <= statistics.rows * 32
    assert statistics.frequent[0][2] >= statistics.frequent[-1][2]
    last = read_manifest(dataset).rows - 1
    assert [row.index for row in inspect(dataset, rows=5, start=last).rows] == [last]
    with pytest.raises(InputError, match=rf"--start \({last + 1}\) must be in 0..{last}"):
        inspect(dataset, start=last + 1)


def train(corpus: Path, output: Path, **options: object):
    return train_tokenizer(
        TrainRequest(**({"inputs": [corpus], "vocab_size": 400, "output": output} | options)), quiet=True
    )


def test_trained_tokenizer_is_of_llamas_kind_and_reproducible(tmp_path: Path, corpus: Path) -> None:
    summary = train(corpus, tmp_path / "new" / "a.model")
    tokenizer = load_tokenizer(summary.output)
    assert (tokenizer.vocab_size, tokenizer.bos_id, tokenizer.eod_id) == (400, 1, 2)
    text = "  two  spaces\n\ttab 12345 \u00e9 \u4f60 \U0001f642 \x01"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert [tokenizer.token(index) for index in tokenizer.encode("2024")][-4:] == ["2", "0", "2", "4"]
    assert tokenizer.boundary("no piece holds a newline\nor", 0, 27) == 24
    code = "import os, sys; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\nfrom msllm.cli import main; main()"
    arguments = ["data", "train-tokenizer", "-i", str(corpus), "--vocab-size", "400", "-o", str(tmp_path / "b.model")]
    subprocess.run([sys.executable, "-c", code, *arguments, "--json"], check=True, capture_output=True)
    assert sha256_of(tmp_path / "b.model") == summary.fingerprint


def test_tokenizer_from_a_sample_of_a_larger_corpus(tmp_path: Path) -> None:
    lines = (json.dumps({"text": f"document {number} " * 300}) + "\n" for number in range(600))
    (tmp_path / "a.jsonl").write_text("".join(lines))
    summary = train(tmp_path / "a.jsonl", tmp_path / "a.model", sample_mb=1, vocab_size=290)
    assert summary.sampled and 900_000 < summary.characters < 1_500_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vocab_size": 100_000}, r"--vocab-size \(100000\) must be at most \d+ for the corpus"),
        ({"vocab_size": 265}, r"--vocab-size \(265\) must be at least \d+ for the corpus.*--character-coverage"),
        ({"vocab_size": 259}, r"--vocab-size \(259\) must be above 259"),
        ({"sample_mb": 0}, r"--sample-mb \(0\)"),
        ({"character_coverage": 2.0}, r"--character-coverage \(2.0\)"),
        ({"text_key": "body"}, r"no 'body' \(--text-key\).*--on-error skip"),
        ({"text_key": "body", "on_error": "skip"}, "the corpus is empty"),
    ],
)
def test_training_that_cannot_be(tmp_path: Path, corpus: Path, options: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as error:
        train(corpus, tmp_path / "a.model", **options)
    import re

    assert re.search(message, str(error.value).replace("\n", " "))
    assert not (tmp_path / "a.model").exists()


def test_tokenizer_is_not_replaced_unasked(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "a.model").write_text("mine")
    with pytest.raises(InputError, match="--overwrite"):
        train(corpus, tmp_path / "a.model")
    assert (tmp_path / "a.model").read_text() == "mine"
    assert train(corpus, tmp_path / "a.model", overwrite=True).vocab_size == 400


def invoke(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_commands_print_words_or_json(tmp_path: Path, corpus: Path, tokenizer_file: Path) -> None:
    convert_ = ["convert", "-i", corpus, "--tokenizer", tokenizer_file, "--seq-length", 32, "-o", tmp_path / "set"]
    code, text = invoke(*convert_, "--workers", 1)
    assert code == 0 and "rows of 32 + 1 tokens" in text and "documents" in text
    code, text = invoke(*convert_, "--json")
    assert code == 0 and json.loads(text)["reused"] is True
    code, text = invoke("inspect", tmp_path / "set", "--rows", 1, "--json")
    assert code == 0 and len(json.loads(text)["decoded_rows"]) == 1
    code, text = invoke("inspect", tmp_path / "set")
    assert code == 0 and "row 2" in text and "<EOD>" in text
    code, text = invoke("verify", tmp_path / "set")
    assert code == 0 and "whole" in text
    (tmp_path / "set" / "shard-00000.mindrecord.db").unlink()
    code, text = invoke("verify", tmp_path / "set", "--json")
    assert code == 1 and json.loads(text)["damaged"][0]["file"] == "shard-00000.mindrecord.db"
    code, text = invoke("verify", tmp_path / "set")
    assert code == 1 and "shard-00000.mindrecord.db: missing" in text


def test_commands_start_without_mindspore() -> None:
    code = "import sys, data_tools.report, data_tools.worker  # these import all others\n"
    code += "heavy = {'mindspore', 'pyarrow', 'tokenizers', 'sentencepiece', 'rich'} & set(sys.modules)\nassert not heavy, heavy"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_tokenizer_of_a_dataset_is_checked_against_its_fingerprint(copy: Path) -> None:
    (copy / "tokenizer.model").write_bytes((copy / "tokenizer.model").read_bytes() + b"\x1a\x02\x08\x01")
    with pytest.raises(InputError, match=r"tokenizer\.model: is not the tokenizer that made this dataset"):
        load_tokenizer(copy)
