"""The command msllm: exit codes, messages, and that it starts light."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from msllm import __version__
from msllm.cli import app, main

ROOT = Path(__file__).parents[2]
TINY = str(ROOT / "models/llama/configs/llama_tiny.yaml")


@pytest.fixture
def run(monkeypatch, capsys):
    """Call the command in this process: (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["msllm", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call


def test_version(run):
    assert run("--version") == (0, f"msllm {__version__}\n", "")


def test_help_lists_the_commands(run):
    code, out, _ = run("--help")
    assert code == 0
    assert "config" in out


@pytest.mark.parametrize("arguments", [["conifg"], ["config", "show"], ["--nonsense"], ["config", "show", "-c"]])
def test_wrong_usage_is_exit_code_2(run, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert "Error" in err


def test_faults_go_to_stderr_one_a_line_and_brackets_survive(run, tmp_path):
    path = tmp_path / "o[red]d.yaml"
    path.write_text("modle: {}\n")
    code, out, err = run("config", "show", "-c", TINY, "-c", str(path), "-s", "data.seq_length=9999999")
    assert (code, out) == (2, "")
    assert err.splitlines() == [
        f"error: {path}:1: unknown section modle; did you mean model?",
        (
            "error: seq_length (9999999) must be at most max_position_embeddings (512); set seq_length to 512 or less "
            f"(--set data.seq_length=9999999, {TINY}:12)"
        ),
    ]


def test_show_prints_each_value_with_its_origin(run):
    code, out, _ = run("config", "show", "-c", TINY, "--set", "optimizer.learning_rate=1e-3")
    assert code == 0
    rows = [line.split(maxsplit=2) for line in out.splitlines()]
    assert ["learning_rate", "0.001", "--set optimizer.learning_rate=1e-3"] in rows
    assert ["vocab_size", "1024", f"{TINY}:6"] in rows
    assert ["rope_scaling", "null", "default"] in rows


def test_show_as_json_is_only_json_and_loads_again(run, tmp_path):
    code, out, _ = run("config", "show", "-c", TINY, "--json")
    assert code == 0
    document = json.loads(out)
    assert document["origins"]["model.vocab_size"] == f"{TINY}:6"
    (tmp_path / "again.yaml").write_text(json.dumps(document["config"]))
    code, out, _ = run("config", "show", "-c", str(tmp_path / "again.yaml"), "--json")
    assert json.loads(out)["config"] == document["config"]


def test_schema_is_written_to_a_file_or_stdout(run, tmp_path):
    code, out, _ = run("config", "schema")
    assert code == 0
    assert run("config", "schema", "--output", str(tmp_path / "s.json"))[0] == 0
    assert (tmp_path / "s.json").read_text() == out == (ROOT / "msllm/config/schema.json").read_text()


def test_import_mindformers_writes_a_file_and_says_what_is_missing(run, tmp_path):
    source, output = tmp_path / "mf.yaml", tmp_path / "ours.yaml"
    source.write_text("parallel_config:\n  model_parallel: 4\nrecompute_config:\n  recompute: [[1], [2]]\n")
    code, out, _ = run("config", "import-mindformers", str(source), "-o", str(output))
    assert code == 0
    assert f"wrote {output} with 2 values" in out
    assert "  - recompute_config: only true, false or a list with one number of layers a stage has a counterpart" in out
    assert "  - model.model_type is required: one of gpt2, llama" in out
    assert run("config", "import-mindformers", str(source), "-o", str(output))[0] == 2
    output.unlink()
    code, out, _ = run("config", "import-mindformers", str(source), "-o", str(output), "--json")
    assert json.loads(out)["config"]["parallel_config"] == {"model_parallel": 4, "vocab_emb_dp": True}
    output.unlink()
    source.write_text("recompute_config:\n  recompute: true\n")
    assert f"wrote {output} with 1 value\n" in run("config", "import-mindformers", str(source), "-o", str(output))[1]


def test_a_folder_that_cannot_be_written_is_a_message(run, tmp_path):
    code, _, err = run("config", "schema", "--output", str(tmp_path / "missing" / "s.json"))
    assert code == 1
    assert err.startswith("error: ")
    assert "No such file or directory" in err


@pytest.mark.parametrize(("raised", "code"), [(KeyboardInterrupt, 130), (BrokenPipeError, 1)])
def test_ctrl_c_and_a_closed_pipe_end_quietly(run, monkeypatch, raised, code):
    def stop(*_):
        raise raised

    monkeypatch.setattr("msllm.commands.options.load_from_options", stop)
    monkeypatch.setattr("msllm.commands.config.load_from_options", stop)
    result, out, err = run("config", "show", "-c", TINY)
    assert (result, out) == (code, "")
    assert "Traceback" not in err


def test_starting_needs_no_mindspore_nor_other_heavy_packages():
    code = """
import sys
import msllm.cli
heavy = {"mindspore", "mindformers", "numpy", "pyarrow", "tokenizers", "sentencepiece", "pydantic"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def commands_with_json() -> list[tuple[str, ...]]:
    """Every command that has --json, as the words that call it."""
    found = []

    def walk(command: Any, words: tuple[str, ...]) -> None:
        for name, below in getattr(command, "commands", {}).items():
            walk(below, (*words, name))
        if any("--json" in parameter.opts for parameter in command.params):
            found.append(words)

    walk(typer.main.get_command(app), ())
    return found


@pytest.mark.parametrize("words", commands_with_json(), ids=" ".join)
def test_wrong_usage_of_any_command_is_one_json_document_where_asked(run, words):
    code, out, err = run(*words, "--json", "--nonsense")
    error = json.loads(out)["error"]
    assert (code, error["exit_code"]) == (2, 2)
    assert [(p["file"], p["line"]) for p in error["problems"]] == [(None, None)]
    assert "--nonsense" in error["problems"][0]["message"]
    assert "--nonsense" in err
    assert run(*words, "--nonsense")[:2] == (2, "")


WRONG = {
    ("config", "show"): ["-c", "none.yaml"],
    ("config", "import-mindformers"): ["none.yaml", "-o", "o.yaml"],
    ("data", "convert"): ["-i", "none", "--tokenizer", "none.model", "--seq-length", "8", "-o", "o"],
    ("data", "train-tokenizer"): ["-i", "none", "--vocab-size", "300", "-o", "o.model"],
    ("data", "merge"): ["-o", "none"],
    ("data", "inspect"): ["none"],
    ("data", "verify"): ["none"],
    ("train",): ["-c", "none.yaml", "-o", "run"],
    ("evaluate",): ["-k", "none"],
    ("generate",): ["-k", "none", "--prompt", "a"],
    ("weights", "check"): ["none"],
    ("weights", "export"): ["-k", "none", "-o", "o"],
    ("bench", "step"): ["-c", "none.yaml"],
    ("bench", "data"): ["-c", "none.yaml"],
    ("bench", "convert"): ["-i", "none", "--tokenizer", "none.model"],
    ("ranktable", "generate"): ["--hosts", "none.txt", "--device-ips", "10.0.0.1", "-o", "o.json"],
    ("ranktable", "merge"): ["none.json", "none2.json", "-o", "o.json"],
    ("ranktable", "show"): ["none.json"],
    ("ranktable", "diff"): ["none.json", "none2.json"],
}


@pytest.mark.parametrize("words", WRONG, ids=" ".join)
def test_wrong_input_of_any_command_is_one_json_document_where_asked(run, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(*words, *WRONG[words], "--json")
    error = json.loads(out)["error"]
    assert (code, error["exit_code"]) == (2, 2)
    assert len(err.splitlines()) == len(error["problems"])
    for line, problem in zip(err.splitlines(), error["problems"]):
        assert sorted(problem) == ["file", "line", "message"]
        assert line.endswith(problem["message"])
        assert problem["file"] is None or problem["file"] in line
    assert list(tmp_path.iterdir()) == []


def test_the_json_of_an_error_has_its_place(run, tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("\nmodle: {}\n")
    _, out, _ = run("config", "show", "-c", TINY, "-c", str(path), "--json")
    problem = {"message": "unknown section modle; did you mean model?", "file": str(path), "line": 2}
    assert json.loads(out) == {"error": {"exit_code": 2, "problems": [problem]}}


def test_ctrl_c_is_one_line_and_a_json_document_where_asked(run, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("msllm.commands.config.load_from_options", stop)
    code, out, err = run("config", "show", "-c", TINY, "--json")
    assert (code, err) == (130, "error: stopped by Ctrl-C\n")
    assert json.loads(out)["error"]["exit_code"] == 130
