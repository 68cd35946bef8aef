"""Checkpoints of runs whose ranks hold slices: MindSpore's own layouts, read and written by simulated Ascend ranks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_runs

from msllm.checkpoint.regions import stored_tensors
from msllm.checkpoint.state import damage_of, load_state
from msllm.config.load import write_resolved
from msllm.rehearsal.environment import simulated_environment

pytestmark = pytest.mark.distributed
ZERO = ["enable_parallel_optimizer=true", "parallel_optimizer_config.parallel_optimizer_threshold=0"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[Path, Path]:
    """A configuration, and the checkpoint that two steps of it on one CPU left."""
    folder = tmp_path_factory.mktemp("sliced")
    config = tiny_runs.write_config(folder / "run.yaml", tiny_runs.write_data(folder / "data"), steps=2)
    text = config.read_text().replace("num_hidden_layers: 1", "num_hidden_layers: 2")
    config.write_text(text)
    run = tiny_runs.train(config, folder / "run")
    more = text.replace("device_target: CPU", "device_target: Ascend").replace("train_steps: 2", "train_steps: 3")
    config.write_text(more)
    return config, tiny_runs.checkpoint(run, 2)


def start(rank: int, size: int, *arguments: Path) -> subprocess.Popen[str]:
    environment = simulated_environment(rank, size, level=1)
    environment["PYTHONPATH"] = f"{Path(tiny_runs.__file__).parent}:{environment['PYTHONPATH']}"
    script = Path(__file__).with_name("save_simulated_rank.py")
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        env=environment,
        cwd=arguments[-1],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.parametrize(
    "parallel",
    [
        ["data_parallel=2", "model_parallel=2", *ZERO],
        pytest.param(
            ["data_parallel=2", "pipeline_stage=2", "micro_batch_num=2", *ZERO], marks=pytest.mark.extended, id="stages"
        ),
    ],
)
def test_ranks_that_hold_slices_write_together_what_they_have_read_and_train_on(whole, parallel, tmp_path):
    config, checkpoint = whole
    run = tmp_path / "run"
    run.mkdir()
    write_resolved(
        tiny_runs.load(config, *(f"parallel_config.{item}" for item in parallel)).config, tmp_path / "resolved.yaml"
    )
    ranks = [start(rank, 4, tmp_path / "resolved.yaml", checkpoint, run) for rank in range(4)]
    said = [rank.communicate(timeout=300)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * 4, "\n".join(text[-2000:] for text in said)
    saved = tiny_runs.checkpoint(run, 2)
    assert damage_of(saved) == []
    assert damage_of(tiny_runs.checkpoint(run, 3)) == []  # after a step and an evaluation, of which no number is real
    assert [line["step"] for line in tiny_runs.metrics(run, "eval")] == [3]
    assert len(list((run / "strategy").glob("ckpt_strategy_rank_[0-3].ckpt"))) == 4
    cut = {name: tensor for name, tensor in stored_tensors(saved).items() if len(tensor.parts) > 1}
    assert {"lm_head.weight", "adam_m.model.layers.1.mlp.up_proj.weight"} <= set(cut)
    wanted, found = load_state(checkpoint), load_state(saved)
    assert found.state["samples_seen"] == wanted.state["samples_seen"]
    for before, after in ((wanted.model, found.model), (wanted.optimizer, found.optimizer)):
        assert set(before) == set(after)
        for name, value in before.items():
            np.testing.assert_array_equal(after[name], value, err_msg=name)
