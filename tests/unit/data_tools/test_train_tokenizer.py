"""A tokenizer of Llama's kind from a corpus."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from data_tools.train_tokenizer import TrainRequest, train_tokenizer
from msllm.data.tokenizer import load_tokenizer
from msllm.errors import InputError
from msllm.files import sha256_of


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

    assert re.search(message, str(error.value).replace("\n", " "))
    assert not (tmp_path / "a.model").exists()


def test_tokenizer_is_not_replaced_unasked(tmp_path: Path, corpus: Path) -> None:
    (tmp_path / "a.model").write_text("mine")
    with pytest.raises(InputError, match="--overwrite"):
        train(corpus, tmp_path / "a.model")
    assert (tmp_path / "a.model").read_text() == "mine"
    assert train(corpus, tmp_path / "a.model", overwrite=True).vocab_size == 400


def test_an_output_that_cannot_be_written_is_found_before_anything_is_read(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as error:
        train(tmp_path / "no corpus", tmp_path / "file" / "a.model")
    assert str(error.value) == f"{tmp_path}/file/a.model: cannot be written: {tmp_path}/file is a file"
    # /proc says that it can be written, and root may write everywhere: only trying tells.
    with pytest.raises(InputError) as error:
        train(tmp_path / "no corpus", Path("/proc/a.model"))
    assert str(error.value).startswith("/proc/a.model: cannot be written: ")
