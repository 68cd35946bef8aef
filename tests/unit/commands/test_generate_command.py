"""`msllm generate`: what goes to stdout, and how a text ends."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import tiny_runs

from msllm.checkpoint.state import TrainingState, save_state
from msllm.cli import main
from msllm.config.load import load_run_config
from msllm.config.yaml_text import dump_yaml
from msllm.data.tokenizer import load_tokenizer
from msllm.files import sha256_of
from msllm.registry import MODEL_CONFIGS, build_model

LONGEST = 24


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory, tokenizer_file) -> Path:
    """A run of a model that has learned nothing, with the tokenizer of 500 tokens."""
    folder = tmp_path_factory.mktemp("generate") / "run"
    (folder / "tokenizer").mkdir(parents=True)
    shutil.copy(tokenizer_file, folder / "tokenizer" / "tiny.model")
    sections = {
        "model": {**tiny_runs.LLAMA, "vocab_size": 512, "max_position_embeddings": LONGEST},
        "data": {"train_dataset": "x", "seq_length": 16},
        "training": {"train_steps": 1, "global_batch_size": 2},
    }
    (folder / "a.yaml").write_text(dump_yaml(sections))
    config = load_run_config([folder / "a.yaml"], None, [], MODEL_CONFIGS).config
    weights = {p.name: p.asnumpy() for p in build_model(config.model).get_parameters()}
    state = {"step": 1, "dataset": {"tokenizer": sha256_of(tokenizer_file), "eod_id": 2}}
    save_state(folder / "checkpoints", 1, TrainingState(weights, {}, state), config)
    return folder


@pytest.fixture
def generate(run_folder, monkeypatch, capfd):
    """`msllm generate` in this process: (exit code, stdout, stderr)."""

    def call(*arguments: object, checkpoint: Path = run_folder) -> tuple[int, str, str]:
        argv = ["msllm", "generate", "-k", str(checkpoint), "--no-cache", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capfd.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call


def test_a_text_ends_with_a_note_where_the_model_takes_no_more(generate, tokenizer_file):
    room = LONGEST - len(load_tokenizer(tokenizer_file).encode("the graph"))
    code, out, err = generate("--prompt", "the graph", "--max-new-tokens", 99, "--stop-id", 511)
    assert code == 0 and out.startswith("the graph") and out.endswith("\n")
    note = f"note: stopped after {room} of 99 tokens: with the prompt's {LONGEST - room} they fill the model's "
    assert err == f"{note}max_position_embeddings ({LONGEST})\n"
    code, out, err = generate("--prompt", "the graph", "--max-new-tokens", 99, "--json")
    answer = json.loads(out)
    assert (code, err, answer["ended_by"], len(answer["ids"])) == (0, "", "max_position_embeddings", room)


def test_a_text_as_long_as_asked_for_ends_without_a_note(generate):
    code, out, err = generate("--prompt", "the graph", "--max-new-tokens", 2, "--json")
    assert (code, err, json.loads(out)["ended_by"]) == (0, "", "max_new_tokens")


def test_a_text_that_ends_at_once_is_the_prompt(generate):
    stops = [part for index in range(512) for part in ("--stop-id", index)]
    assert generate("--prompt", "the graph", *stops) == (0, "the graph\n", "")
    assert json.loads(generate("--prompt", "the graph", *stops, "--json")[1])["ended_by"] == "stop_id"


def test_an_error_does_not_come_behind_the_prompt(generate):
    code, out, err = generate("--prompt", "the graph " * 30)
    assert (code, out) == (2, "")
    assert err.startswith("error: the prompt has ") and "max_position_embeddings (24)" in err


def test_a_file_is_no_run(generate, run_folder):
    file = run_folder / "checkpoints" / "step_00000001" / "model.safetensors"
    code, out, err = generate("--prompt", "a", checkpoint=file)
    assert (code, out) == (2, "")
    assert err == f"error: {file}: is a file; give a run's folder or a checkpoint's\n"
