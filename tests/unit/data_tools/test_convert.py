"""From text files to a dataset: what comes out, and what does not depend on what."""

from __future__ import annotations

import gzip
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from corpora import content, expected, stream, write_jsonl
from pyarrow import parquet

from data_tools.convert import ConvertSummary
from msllm.data.manifest import Manifest, read_manifest
from msllm.data.mindrecord import read_rows
from msllm.data.tokenizer import load_tokenizer
from msllm.errors import InputError

Convert = Callable[..., ConvertSummary]


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
    with pytest.raises(InputError, match=r"1 document with \d+ tokens in 1 shard, a row needs 4097"):
        run([source], seq_length=4096)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl"]


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
    with pytest.raises(InputError, match=r"0 documents \(10,000 skipped\) with 0 tokens"):
        run([tmp_path / "a.jsonl"], shards=1, on_error="skip")


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


def test_tokenizer_of_a_dataset_is_checked_against_its_fingerprint(copy: Path) -> None:
    (copy / "tokenizer.model").write_bytes((copy / "tokenizer.model").read_bytes() + b"\x1a\x02\x08\x01")
    with pytest.raises(InputError, match=r"tokenizer\.model: is not the tokenizer that made this dataset"):
        load_tokenizer(copy)
