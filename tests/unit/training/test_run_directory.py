from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tiny_runs

from msllm.checkpoint.state import TrainingState, save_state
from msllm.config.sections import DataConfig, RunConfig, TrainingConfig
from msllm.errors import InputError
from msllm.training.run_directory import RunDirectory

CONFIG = RunConfig(
    model=tiny_runs.llama_config(),
    data=DataConfig(train_dataset="data", seq_length=16),
    training=TrainingConfig(train_steps=10, global_batch_size=8),
)


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    made = RunDirectory(tmp_path / "run")
    made.create()
    return made


@pytest.fixture
def tokenizer(tmp_path: Path) -> Path:
    file = tmp_path / "tokenizer.model"
    file.write_bytes(b"pieces")
    return file


def line(step: int, kind: str = "train") -> str:
    return json.dumps({"kind": kind, "step": step, "loss": 1.0}) + "\n"


def test_a_new_folder_holds_no_run(directory: RunDirectory):
    assert not directory.has_run() and directory.tokenizer_file() is None
    directory.metrics.write_text(line(1))
    assert directory.has_run()


def test_a_run_begins_with_its_configuration_and_its_tokenizer(directory: RunDirectory, tokenizer: Path):
    from msllm.commands.options import load_from_options

    directory.begin(CONFIG, tokenizer, step=0)
    assert load_from_options([directory.config]).config == CONFIG
    kept = directory.tokenizer_file()
    assert kept is not None and kept.name == "tokenizer.model" and kept.read_bytes() == b"pieces"


@pytest.mark.parametrize(
    "tail",
    ["", line(4)[:20], line(4).rstrip("\n"), "\0" * 50, "[]\n" + line(3), '{"kind": "train"}\n'],
    ids=["clean", "cut line", "no line end", "zeros after a power cut", "another document", "no step"],
)
def test_what_came_after_the_step_is_forgotten(directory: RunDirectory, tokenizer: Path, tail: str):
    kept = line(1) + line(2) + line(2, "eval") + line(3)
    directory.metrics.write_text(kept + tail)
    directory.begin(CONFIG, tokenizer, step=3)
    assert directory.metrics.read_text() == kept
    directory.begin(CONFIG, tokenizer, step=2)
    assert directory.metrics.read_text() == line(1) + line(2) + line(2, "eval")


def test_bytes_that_are_no_text_are_forgotten(directory: RunDirectory, tokenizer: Path):
    directory.metrics.write_bytes(line(1).encode() + b"\xff\xfe\xfd\n")
    directory.begin(CONFIG, tokenizer, step=1)
    assert directory.metrics.read_text() == line(1)


def test_states_after_the_step_make_room(directory: RunDirectory, tokenizer: Path):
    for step in (1, 2):
        save_state(directory.checkpoints, step, TrainingState({}, {}, {"step": step}), CONFIG)
    directory.begin(CONFIG, tokenizer, step=1)
    assert sorted(p.name for p in directory.checkpoints.iterdir()) == ["damaged_step_00000002", "step_00000001"]


def test_a_second_owner_is_refused_by_the_process_that_writes(directory: RunDirectory):
    directory.acquire()
    with pytest.raises(InputError, match=f"run: process {os.getpid()} is writing this run"):
        RunDirectory(directory.path).acquire()


def test_the_lock_goes_with_the_process_that_held_it(directory: RunDirectory):
    code = (
        "import os, sys, pathlib; from msllm.training.run_directory import RunDirectory\n"
        "RunDirectory(pathlib.Path(sys.argv[1])).acquire()\nos.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(directory.path)])
    assert done.returncode == -9
    directory.acquire()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="choose another --output"):
        RunDirectory(tmp_path / "file" / "run").create()
