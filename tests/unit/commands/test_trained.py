"""Commands that use a trained model take a run's folder or a checkpoint's, and use neither when it is damaged."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from msllm.checkpoint.state import TrainingState, save_state
from msllm.commands.trained import find_trained
from msllm.config.load import load_run_config
from msllm.errors import InputError
from msllm.registry import MODEL_CONFIGS

TINY = Path(__file__).parents[3] / "models/llama/configs/llama_tiny.yaml"


@pytest.fixture
def run_folder(tmp_path) -> Path:
    config = load_run_config([TINY], None, [], MODEL_CONFIGS).config
    for step in (3, 7):
        arrays = {"weight": np.full(4, step, np.float32)}
        state = {"step": step, "dataset": {"tokenizer": sha256(b"x").hexdigest(), "eod_id": 2}}
        save_state(tmp_path / "run/checkpoints", step, TrainingState(arrays, {}, state), config)
    return tmp_path / "run"


def test_a_runs_folder_stands_for_its_newest_checkpoint(run_folder):
    trained = find_trained(run_folder)
    assert (trained.step, trained.tokenizer_file) == (7, None)
    assert (trained.tokenizer_fingerprint, trained.eod_id) == (sha256(b"x").hexdigest(), 2)
    assert trained.config.model.model_type == "llama"


def test_the_copy_of_the_tokenizer_is_found_from_a_checkpoint_too(run_folder):
    (run_folder / "tokenizer").mkdir()
    (run_folder / "tokenizer/words.model").write_bytes(b"x")
    trained = find_trained(run_folder / "checkpoints/step_00000003")
    assert (trained.step, trained.tokenizer_file) == (3, run_folder / "tokenizer/words.model")


@pytest.mark.parametrize("file", ["state.json", "config.yaml", "model.safetensors", "manifest.json", "COMPLETE"])
def test_a_damaged_checkpoint_is_refused_by_name_and_passed_over_by_run(run_folder, file, capsys):
    newest = run_folder / "checkpoints/step_00000007"
    (newest / file).write_bytes(b"{")
    with pytest.raises(InputError):
        find_trained(newest)
    assert find_trained(run_folder).step == 3
    assert "passed over a damaged checkpoint" in capsys.readouterr().err


def test_folders_of_other_things_are_refused(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        find_trained(tmp_path / "missing")
    (tmp_path / "model.safetensors").write_bytes(b"x")
    with pytest.raises(InputError, match="is a file; give a run's folder or a checkpoint's"):
        find_trained(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(InputError, match="holds no complete checkpoint"):
        find_trained(tmp_path)
