"""The commands of `msllm data`: words or JSON, and a light start."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

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


def test_commands_start_without_mindspore() -> None:
    code = "import sys, data_tools.report, data_tools.worker  # these import all others\n"
    code += "heavy = {'mindspore', 'pyarrow', 'tokenizers', 'sentencepiece', 'rich'} & set(sys.modules)\nassert not heavy, heavy"
    subprocess.run([sys.executable, "-c", code], check=True)
