from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from data_tools.convert import ConvertSummary, convert
from data_tools.plan import ConvertRequest, make_plan
from data_tools.shard import ShardFolders, convert_shard
from msllm.data.manifest import Manifest, ShardInfo, read_manifest
from msllm.data.mindrecord import read_rows
from msllm.data.tokenizer import load_tokenizer
from msllm.errors import InputError

Convert = Callable[..., ConvertSummary]


def write_jsonl(path: Path, documents: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(json.dumps({"text": text}).encode() + b"\n" for text in documents))
    return path


def content(folder: Path) -> dict[str, str]:
    """sha256 of every file."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def stream(folder: Path, shard: ShardInfo) -> list[int]:
    """The tokens of a shard, from its rows, without padding."""
    rows = np.stack(list(read_rows([str(folder / shard.file)])))
    assert len(rows) == shard.rows and rows.dtype == np.int32
    assert np.array_equal(rows[1:, 0], rows[:-1, -1])
    tokens = [int(rows[0, 0]), *map(int, rows[:, 1:].ravel())]
    assert len(tokens) == shard.tokens + shard.padding_tokens - shard.dropped_tokens
    return tokens[: shard.tokens]


def expected(tokenizer_file: Path, documents: Sequence[str]) -> list[int]:
    tokenizer = load_tokenizer(tokenizer_file)
    return [token for text in documents for token in [*tokenizer.encode(text), tokenizer.eod_id]]


@pytest.fixture
def run(tmp_path: Path, tokenizer_file: Path) -> Convert:
    """Convert with defaults for what a test does not care about."""

    def run(inputs: Sequence[Path], **options: Any) -> ConvertSummary:
        options = {"seq_length": 32, "output": tmp_path / "out", "workers": 1, "tokenizer": tokenizer_file} | options
        return convert(ConvertRequest(inputs=inputs, **options), quiet=True)

    return run


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(
    documents=st.lists(
        st.text(alphabet=" \nabcé你😀", min_size=1, max_size=80).filter(lambda text: not text.isspace()),
        min_size=1,
        max_size=30,
    ),
    shards=st.integers(1, 4),
    seq_length=st.integers(1, 40),
)
def test_rows_give_exactly_the_token_stream_for_any_shards_and_length(
    fresh_folder: Callable[[], Path], tokenizer_file: Path, documents: list[str], shards: int, seq_length: int
) -> None:
    folder = fresh_folder()
    source = write_jsonl(folder / "a.jsonl", documents)
    plan = make_plan(ConvertRequest([source], tokenizer_file, seq_length, folder / "out", shards=shards))
    folders = ShardFolders(folder / "output", folder / "results", folder / "temporary")
    for path in (folders.output, folders.results, folders.temporary):
        path.mkdir()
    results = [convert_shard(job, plan.options, "fail", plan.tokenizer, folders, lambda *_: None) for job in plan.jobs]
    got = [token for result in results if result.info for token in stream(folders.output, result.info)]
    assert got == expected(tokenizer_file, documents)
    assert sum(result.documents for result in results) == len(documents)
    assert len(list(folders.results.iterdir())) == shards


def test_bytes_do_not_depend_on_workers_folder_or_rerun(
    tmp_path: Path, run: Convert, documents: list[str], tokenizer_file: Path
) -> None:
    first = write_jsonl(tmp_path / "one" / "corpus" / "a.jsonl", documents).parent
    (first / "b.txt").write_text("some more text\n" * 300)
    (first / "c.jsonl.gz").write_bytes(gzip.compress(write_jsonl(tmp_path / "c", documents[:50]).read_bytes()))
    parquet.write_table(pyarrow.table({"text": documents[:70]}), first / "d.parquet", row_group_size=20)
    second = tmp_path / "two" / "corpus"
    shutil.copytree(first, second)
    found = [
        content(run([corpus], shards=3, workers=workers, output=tmp_path / f"out{number}").output)
        for number, (corpus, workers) in enumerate([(first, 1), (second, 2), (first, 3)])
    ]
    assert found[0] == found[1] == found[2]
    manifest = read_manifest(tmp_path / "out0")
    want = [*documents, "some more text\n" * 300, *documents[:50], *documents[:70]]
    got = [token for shard in manifest.shards for token in stream(tmp_path / "out0", shard)]
    assert got == expected(tokenizer_file, want)
    assert (manifest.documents, manifest.tokens) == (len(want), len(got))
    assert {source.file for source in manifest.sources} == {
        f"corpus/{name}" for name in ("a.jsonl", "b.txt", "c.jsonl.gz", "d.parquet")
    }


def test_manifest_and_tokenizer_copy_describe_the_output(
    tmp_path: Path, run: Convert, documents: list[str], tokenizer_file: Path
) -> None:
    summary = run([write_jsonl(tmp_path / "a.jsonl", documents)], shards=2)
    manifest = read_manifest(summary.output)
    tokenizer = load_tokenizer(summary.output)
    assert tokenizer.fingerprint == manifest.tokenizer.fingerprint == load_tokenizer(tokenizer_file).fingerprint
    assert (manifest.seq_length, manifest.eod_id, manifest.vocab_size) == (32, tokenizer.eod_id, tokenizer.vocab_size)
    assert manifest.max_token_id == max(expected(tokenizer_file, documents))
    assert manifest.rows == len(list(read_rows(manifest.files())))
    assert set(manifest.versions) == {"msllm", "mindspore", "sentencepiece"}
    assert not (tmp_path / "out.partial").exists()
    assert summary.to_dict()["rows"] == manifest.rows


@pytest.mark.parametrize("tail", ["pad", "drop"])
def test_tail_is_padded_or_dropped_and_counted(tmp_path: Path, run: Convert, tail: str, tokenizer_file: Path) -> None:
    documents = ["a text of some length"] * 7
    summary = run([write_jsonl(tmp_path / "a.jsonl", documents)], tail=tail, shards=1)
    manifest = summary.manifest
    tokens = len(expected(tokenizer_file, documents))
    rows, left = divmod(tokens - 1, 32)
    assert left > 0 and manifest.tokens == tokens
    if tail == "pad":
        assert (manifest.rows, manifest.padding_tokens, manifest.dropped_tokens) == (rows + 1, 32 - left, 0)
    else:
        assert (manifest.rows, manifest.padding_tokens, manifest.dropped_tokens) == (rows, 0, left)


def test_shards_that_fill_no_row_have_no_file(tmp_path: Path, run: Convert) -> None:
    (tmp_path / "a.txt").write_text("one two three " * 50)
    summary = run([tmp_path / "a.txt"], shards=4)
    assert len(summary.manifest.shards) == 1 and summary.manifest.options.shards == 4


def test_corpus_smaller_than_a_row_is_refused_with_numbers(tmp_path: Path, run: Convert) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", ["x y"])
    with pytest.raises(InputError, match=r"1 documents give \d+ tokens in 1 shards, a row needs 4097"):
        run([source], seq_length=4096)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl"]


def test_empty_corpus(tmp_path: Path, run: Convert) -> None:
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(InputError, match="--input is empty: 1 files of 0 bytes"):
        run([tmp_path / "a.txt"])


def test_all_wrong_arguments_are_named_at_once(tmp_path: Path, run: Convert) -> None:
    with pytest.raises(InputError) as error:
        run([tmp_path / "no"], seq_length=0, shards=1001, workers=0, tokenizer=tmp_path / "no.model", text_key="")
    text = str(error.value)
    for part in (
        "--seq-length (0)",
        "--shards (1001)",
        "--workers (0)",
        "--text-key",
        "no.model",
        "--input no such file",
    ):
        assert part in text


def test_bad_documents_stop_the_run_and_are_named(tmp_path: Path, run: Convert, documents: list[str]) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    lines = source.read_bytes().splitlines()
    lines[150] = b'{"text": "\xff"}'
    lines[160] = b"{"
    source.write_bytes(b"\n".join(lines))
    (tmp_path / "b.txt").write_text("")
    with pytest.raises(InputError) as error:
        run([source, tmp_path / "b.txt"], shards=3)
    messages = [str(problem) for problem in error.value.problems]
    assert messages[0].startswith(f"{source}:151: invalid UTF-8")
    assert messages[1].startswith(f"{source}:161: broken JSON")
    assert messages[2] == f"{tmp_path / 'b.txt'}: empty document"
    assert "3 documents that cannot be used" in messages[3] and "--on-error skip" in messages[3]
    assert not (tmp_path / "out").exists()


def test_bad_documents_can_be_skipped_and_are_counted(tmp_path: Path, run: Convert, documents: list[str]) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    clean = run([source], output=tmp_path / "clean", shards=1).manifest
    source.write_bytes(b"{\n" + source.read_bytes() + b'{"text": ""}\n')
    summary = run([source], on_error="skip", shards=1)
    assert summary.manifest.skipped == {"broken JSON": 1, "empty document": 1}
    assert summary.manifest.documents == len(documents)
    assert summary.manifest.shards == clean.shards


def test_many_bad_documents_end_the_search(tmp_path: Path, run: Convert) -> None:
    (tmp_path / "a.jsonl").write_bytes(b"{\n" * 10_000)
    with pytest.raises(InputError) as error:
        run([tmp_path / "a.jsonl"], shards=1)
    assert len(error.value.problems) == 21
    with pytest.raises(InputError, match=r"0 documents \(10000 were skipped\) give 0 tokens"):
        run([tmp_path / "a.jsonl"], shards=1, on_error="skip")


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


def test_output_that_cannot_be_written(tmp_path: Path, run: Convert, documents: list[str]) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    with pytest.raises(InputError, match="cannot be written"):
        run([source], output=source / "out")


def test_output_inside_the_input_is_not_read(tmp_path: Path, run: Convert, documents: list[str]) -> None:
    corpus = write_jsonl(tmp_path / "corpus" / "a.jsonl", documents).parent
    first = run([corpus], output=corpus / "out")
    again = run([corpus], output=corpus / "out")
    assert again.reused and first.manifest.documents == len(documents)
    assert (str(corpus / "out"), "the output") in again.ignored


def test_relative_paths_are_those_of_the_current_folder(
    tmp_path: Path, run: Convert, documents: list[str], tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "a.jsonl", documents)
    shutil.copy(tokenizer_file, tmp_path / "t.model")
    monkeypatch.chdir(tmp_path)
    run([Path("a.jsonl")], tokenizer=Path("t.model"), output=Path("out"), shards=1)
    assert read_manifest(tmp_path / "out").sources[0].file == "a.jsonl"


def test_link_as_output_stays_a_link(tmp_path: Path, run: Convert, documents: list[str]) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk" / "data")
    run([source])
    assert (tmp_path / "out").is_symlink() and read_manifest(tmp_path / "disk" / "data").documents == len(documents)


def test_hugging_face_tokenizer(tmp_path: Path, run: Convert, documents: list[str]) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>"]
    library.train_from_iterator(
        documents,
        trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False),
    )
    library.save(str(tmp_path / "tokenizer.json"))
    summary = run([write_jsonl(tmp_path / "a.jsonl", documents)], tokenizer=tmp_path / "tokenizer.json", shards=1)
    (shard,) = summary.manifest.shards
    assert stream(summary.output, shard) == expected(tmp_path / "tokenizer.json", documents)
    assert summary.manifest.tokenizer.file == "tokenizer.json" and "tokenizers" in summary.manifest.versions


def test_manifest_type_is_exported(run: Convert, tmp_path: Path, documents: list[str]) -> None:
    assert isinstance(run([write_jsonl(tmp_path / "a.jsonl", documents)]).manifest, Manifest)


def test_a_folder_called_as_our_packages_hides_nothing_from_the_workers(tmp_path, tokenizer_file):
    for name in ("msllm", "models", "data_tools"):
        (tmp_path / "here" / name).mkdir(parents=True)
    (tmp_path / "here/a.txt").write_text("the tensor of the graph " * 200)
    command = [sys.executable, "-P"] if sys.version_info >= (3, 11) else [sys.executable, "-I"]
    command += ["-c", "from msllm.cli import main; main()", "data", "convert", "--input", "a.txt", "--seq-length", "16"]
    command += ["--tokenizer", str(tokenizer_file), "--workers", "1", "--output", "out"]
    done = subprocess.run(command, cwd=tmp_path / "here", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "here/out/manifest.json").exists()
