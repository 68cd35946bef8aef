"""The commands of `msllm data`: words or JSON, and a light start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from msllm.commands.bench import app as bench
from msllm.commands.data import app


def invoke(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout


def test_commands_print_words_or_json(tmp_path: Path, documents: list[str], tokenizer_file: Path) -> None:
    corpus = tmp_path / "a.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
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


def test_parts_are_converted_and_merged(tmp_path: Path, documents: list[str], tokenizer_file: Path) -> None:
    corpus = tmp_path / "a.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    convert_ = ["convert", "-i", corpus, "--tokenizer", tokenizer_file, "--seq-length", 32, "-o", tmp_path / "set"]
    convert_ += ["--workers", 1, "--shards", 2, "--num-parts", 2, "--tokenizer-backend", "reference"]
    code, text = invoke(*convert_, "--part", 1)
    assert code == 0 and text.startswith("part 1 of 2: ") and "msllm data merge" in text
    code, text = invoke(*convert_, "--part", 2, "--json")
    part = json.loads(text)
    assert code == 0 and (part["part"], part["num_parts"], part["shards"], part["reused"]) == (2, 2, 1, False)
    code, text = invoke("merge", "-o", tmp_path / "set")
    assert code == 0 and "of 2 parts; the parts can be removed" in text
    code, text = invoke("merge", "-o", tmp_path / "set", "--json")
    assert code == 0 and json.loads(text)["reused"] is True and json.loads(text)["documents"] == len(documents)


def test_conversions_are_compared(tmp_path: Path, documents: list[str], tokenizer_file: Path) -> None:
    corpus = tmp_path / "a.jsonl"
    corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    command = ["convert", "-i", str(corpus), "--tokenizer", str(tokenizer_file), "--seq-length", "32", "--rounds", "1"]
    command += [
        "--size-mb",
        "1",
        "--workers",
        "1",
        "--backends",
        "reference",
        "--versus",
        "copy=cp {input} {output}",
        "--json",
    ]
    result = CliRunner().invoke(bench, command)
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert [one["name"] for one in found["results"]] == ["copy", "msllm reference, 1 worker"]
    assert found["tokens"] > 0 and found["input_bytes"] >= 1_000_000 and found["results"][0]["times_as_fast"] == 1


def test_commands_start_without_mindspore() -> None:
    code = "import sys, data_tools.report, data_tools.worker  # these import all others\n"
    code += "heavy = {'mindspore', 'pyarrow', 'tokenizers', 'sentencepiece', 'rich'} & set(sys.modules)\nassert not heavy, heavy"
    subprocess.run([sys.executable, "-c", code], check=True)
