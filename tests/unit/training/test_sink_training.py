"""A run through MindSpore's data sink, which exists on Ascend only and is played here (see test_feed.py)."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
import tiny_runs

from msllm.data.manifest import read_manifest
from msllm.errors import RunError
from msllm.parallel.world import World
from msllm.registry import build_model, sharding
from msllm.testing.datasets import counting_rows, write_dataset
from msllm.training.run_directory import RunDirectory
from msllm.training.trainer import Trainer

RARE = 63
"""A token of the first batch only."""


@pytest.fixture
def trainer(tmp_path, monkeypatch) -> Trainer:
    """Two steps a look, the first of which is not finite."""
    monkeypatch.setattr(ms, "data_sink", tiny_runs.played_data_sink, raising=False)
    rows = counting_rows(16, tiny_runs.SEQ_LENGTH, RARE)
    rows[3, 5] = RARE
    write_dataset(tmp_path / "data", rows, tiny_runs.VOCAB)
    file = tiny_runs.write_config(tmp_path / "run.yaml", tmp_path / "data", steps=4)
    config = tiny_runs.load(file, "data.shuffle=false").config
    training = config.training.model_copy(update={"sink_size": 2})  # which a run on CPU is refused
    config = config.model_copy(update={"training": training})
    model = build_model(config.model)
    table = model.model.embed_tokens.weight
    values = table.asnumpy().copy()
    values[RARE] = np.nan
    table.set_data(ms.Tensor(values))
    directory = RunDirectory(tmp_path / "run")
    directory.create()
    data = read_manifest(tmp_path / "data")
    return Trainer(config, model, data, None, directory, World(), sharding(config.model))


def test_a_step_inside_a_sink_that_is_not_finite_stops_the_run(trainer):
    with pytest.raises(
        RunError, match=r"steps 1 to 2, rank 0: 1 of them not finite; the last one had loss [\d.]+, gradient"
    ):
        trainer.run()
    assert trainer.last_saved is None
