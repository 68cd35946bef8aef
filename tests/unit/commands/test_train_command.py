"""What bad input gets from `msllm train`: the facts, an exit code, and never a traceback."""

from __future__ import annotations

import fcntl
import gc
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tiny_runs

from msllm.checkpoint.state import load_state, save_state
from msllm.cli import main
from msllm.testing.datasets import counting_rows, write_dataset


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """config run.yaml, its dataset data, and `finished`: a run of 3 steps with a checkpoint each."""
    folder = tmp_path_factory.mktemp("train")
    config = tiny_runs.write_config(folder / "run.yaml", tiny_runs.write_data(folder / "data"), steps=3)
    tiny_runs.train(config, folder / "finished")
    return folder


@dataclass(frozen=True)
class Said:
    """What a command ended with."""

    code: int
    out: str
    err: str


@pytest.fixture
def train(folder: Path, tmp_path: Path, monkeypatch, capfd):
    """`msllm train` by its entry point, in this process: an exception that gets out of it would be a traceback.

    It runs in `folder`; `output` is there, or a new folder of the test's own.
    """

    def run(*arguments: str | Path, config: str = "run.yaml", output: str | Path = tmp_path / "new") -> Said:
        argv = ["msllm", "train", "-c", config, "--output", str(output), *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", argv)
        monkeypatch.chdir(folder)
        gc.collect()  # see cpu_device in conftest.py
        try:
            main()
        except SystemExit as end:
            captured = capfd.readouterr()
            return Said(int(end.code or 0), captured.out, captured.err)
        raise AssertionError("main returned")

    return run


def assert_refused(said: Said, *facts: str, code: int = 2) -> None:
    assert said.code == code, said
    assert "Traceback" not in said.out + said.err and "error: " in said.err, said
    assert [fact for fact in facts if fact not in said.err] == [], said


def set_(**values: object) -> list[str]:
    """--set options; `__` stands for the point."""
    return [part for key, value in values.items() for part in ("--set", f"{key.replace('__', '.')}={value}")]


def test_a_missing_dataset(train, tmp_path: Path):
    assert_refused(train(*set_(data__train_dataset="nowhere")), "nowhere: no such folder", "msllm data convert")
    assert not (tmp_path / "new").exists()


def test_a_file_to_resume_from(train, tmp_path: Path):
    (tmp_path / "model.safetensors").write_bytes(b"x")
    said = train("--resume", tmp_path / "model.safetensors")
    assert_refused(said, "model.safetensors: is a file; --resume takes no, auto or a checkpoint's folder")
    assert_refused(train("--resume", tmp_path / "none"), "none: no such checkpoint folder; --resume takes")


def test_the_command_itself_ends_like_its_entry_point(folder: Path):
    done = tiny_runs.command("train", "-c", "run.yaml", "-o", "new", *set_(data__train_dataset="nowhere"), cwd=folder)
    assert_refused(Said(done.returncode, done.stdout, done.stderr), "nowhere: no such folder")


def test_a_missing_evaluation_dataset(train, folder: Path):
    assert_refused(train(*set_(data__eval_dataset="nowhere")), "nowhere: no such folder")


def test_a_folder_that_is_no_dataset(train, folder: Path):
    (folder / "empty").mkdir(exist_ok=True)
    assert_refused(train(*set_(data__train_dataset="empty")), "empty: is not a dataset", "manifest.json")


@pytest.mark.parametrize("broken", ["missing", "cut", "no index"])
def test_a_dataset_whose_files_are_not_what_its_manifest_says(train, folder: Path, tmp_path: Path, broken: str):
    data = tiny_runs.write_data(tmp_path / "data")
    file = data / "data_1.mindrecord"
    if broken == "missing":
        file.unlink()
    elif broken == "cut":
        os.truncate(file, file.stat().st_size // 2)
    else:
        file = file.with_name(file.name + ".db")
        file.unlink()
    assert_refused(train(*set_(data__train_dataset=data)), f"{data}: {file.name}", "msllm data verify")


@pytest.mark.parametrize("kind", ["missing", "folder", "binary", "not YAML"])
def test_an_unreadable_config(train, folder: Path, kind: str):
    path = folder / f"{kind}.yaml"
    if kind == "folder":
        path.mkdir()
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00model")
    elif kind == "not YAML":
        path.write_text("model: {a: [}")
    assert_refused(train(config=path.name), path.name)


def test_an_evaluation_dataset_of_another_tokenizer(train, folder: Path):
    data = folder / "other_tokenizer"
    write_dataset(data, counting_rows(20, tiny_runs.SEQ_LENGTH, tiny_runs.VOCAB), tiny_runs.VOCAB)
    manifest = json.loads((data / "manifest.json").read_text())
    from msllm.data.manifest import Manifest, TokenizerInfo, write_manifest

    manifest.pop("checksum")
    changed = Manifest.model_validate_json(json.dumps(manifest))
    tokenizer = TokenizerInfo(type="sentencepiece", file="tokenizer.model", fingerprint="ab" * 32)
    write_manifest(data, changed.model_copy(update={"tokenizer": tokenizer}))
    assert_refused(
        train(*set_(data__eval_dataset="other_tokenizer")),
        "another tokenizer",
        "abababababab",
        "other_tokenizer",
    )


def test_a_vocabulary_smaller_than_the_largest_id(train, folder: Path):
    done = train(*set_(model__vocab_size=50))
    assert_refused(done, "token id 63", "model.vocab_size (50)", "at least 64")


def test_a_wrong_seq_length(train, folder: Path):
    done = train(*set_(data__seq_length=32))
    assert_refused(done, "seq_length 16", "data.seq_length is 32", "--seq-length 32")


def test_a_corpus_smaller_than_one_batch(train, folder: Path):
    done = train(*set_(training__global_batch_size=512))
    assert_refused(done, "101 rows", "training.global_batch_size (512)")


def test_a_folder_that_holds_a_run(train, folder: Path):
    assert_refused(train(output="finished"), "finished: holds a run already", "--resume auto")


def test_a_second_process_on_the_same_run(train, folder: Path):
    (folder / "busy").mkdir(exist_ok=True)
    with open(folder / "busy" / ".lock", "w") as lock:
        lock.write("4242")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert_refused(train(output="busy"), "busy: process 4242 is writing this run")


def test_an_output_that_cannot_be_written(train, folder: Path):
    assert_refused(train(output="run.yaml/run"), "run.yaml/run", "another --output")


def test_a_config_of_another_model(train, folder: Path):
    (folder / "gpt2.yaml").write_text(
        (folder / "run.yaml").read_text().replace("model_type: llama", "model_type: gpt2")
    )
    done = train(config="gpt2.yaml")
    assert_refused(done, "gpt2.yaml:", "num_key_value_heads")
    assert_refused(train(*set_(model__model_type="gemma")), "model.model_type", "gemma", "gpt2, llama")


def test_more_processes_than_were_started(train, folder: Path):
    done = train(*set_(parallel_config__data_parallel=2))
    assert_refused(done, "= 2 must equal the number of processes started (1)", "msrun --worker_num 2")


def test_a_strategy_that_cpu_cannot_train_is_sent_to_the_rehearsal(train, folder: Path):
    done = train(*set_(parallel_config__model_parallel=2))
    assert_refused(done, "model_parallel (2) needs Ascend", "CPU trains data-parallel only", "msllm rehearse run")
    assert "processes started" not in done.err


def test_a_checkpoint_of_another_model(train, tmp_path: Path):
    checkpoint = "finished/checkpoints/step_00000003"
    done = train("--resume", checkpoint, *set_(model__hidden_size=64))
    assert_refused(done, checkpoint, "model.hidden_size was 32", "is 64 now", "checkpoint of another model")
    assert not (tmp_path / "new" / "metrics.jsonl").exists()


def test_a_checkpoint_that_is_not_there(train, folder: Path):
    assert_refused(train("--resume", "step_99"), "step_99: no such checkpoint folder")


def test_a_callback_that_is_not_there(train, folder: Path):
    assert_refused(train("--callback", "nothing:Here"), "--callback nothing:Here")


def test_a_learning_rate_that_breaks_the_weights_stops_the_run_with_all_that_helps(train, folder: Path):
    done = train(*set_(optimizer__learning_rate="1.0e30"), output="broken")
    assert_refused(
        done,
        "step 2, rank 0: loss ",
        "gradient norm nan: not finite",
        f"Rows of this rank's batch in {folder / 'data'}: [",
        "broken/checkpoints/step_00000001 holds the weights that failed; there is none before it; lower optimizer.",
        code=1,
    )
    assert "last good checkpoint" not in done.err
    from msllm.data.sampler import SampleOrder

    rows = SampleOrder(tiny_runs.ROWS, seed=42).rows_at(np.arange(8, 16)).tolist()
    assert str(rows) in done.err
    assert [line["step"] for line in tiny_runs.metrics(folder / "broken")] == [1]


def test_the_last_good_checkpoint_is_one_before_the_weights_that_failed(train, folder: Path):
    shutil.copytree(folder / "finished", folder / "later")
    values = {"optimizer__learning_rate": "1.0e30", "training__train_steps": 9}
    done = train(*set_(**values), "--resume", "auto", output="later")
    failed, good = "later/checkpoints/step_00000004 holds the weights that failed", "later/checkpoints/step_00000003"
    assert_refused(done, "step 5, rank 0: ", f"{failed}; last good checkpoint: {good}; lower optimizer.", code=1)
    done = train(*set_(**values, checkpoint__save_steps=100), "--resume", folder / good, output="rare")
    assert_refused(done, "step 5, rank 0: ", f"last good checkpoint: {folder / good}\n", code=1)
    shutil.copytree(folder / good, folder / "best")
    done = train(*set_(**values, checkpoint__save_steps=100), "--resume", "best", output="from_a_copy")
    assert_refused(done, "step 5, rank 0: ", "last good checkpoint: best\n", code=1)


def test_a_nan_in_the_weights_is_told_with_the_checkpoint_to_go_back_to(train, folder: Path):
    good = folder / "finished" / "checkpoints" / "step_00000002"
    state = load_state(good)
    poisoned = dict(state.model)
    name = sorted(poisoned)[0]
    poisoned[name] = np.full_like(poisoned[name], np.nan)
    config = tiny_runs.load(folder / "run.yaml").config
    bad = save_state(folder / "poisoned", 2, type(state)(poisoned, state.optimizer, state.state), config)
    done = train("--resume", bad, output="after_nan")
    assert_refused(done, "step 3, rank 0: loss nan", "The update was not made", f"{bad} holds the weights that", code=1)


def test_float16_that_overflows_without_end_stops_with_the_scale(train, folder: Path):
    values = {
        "training__amp_level": "O2",
        "training__compute_dtype": "float16",
        "training__loss_scale": "{loss_scale_value: 1.0e+30}",
        "training__max_consecutive_overflows": 2,
    }
    done = train(*set_(**values), output="overflow")
    assert_refused(done, "step 2: 2 steps in a row overflowed float16", "loss scale is down to 5e+29", code=1)


def test_json_leaves_one_document_on_stdout(train):
    done = train("--json", "--resume", "auto", output="finished")
    assert done.code == 0, done.err
    assert json.loads(done.out) == {
        "run": "finished",
        "step": 3,
        "checkpoint": "finished/checkpoints/step_00000003",
    }
