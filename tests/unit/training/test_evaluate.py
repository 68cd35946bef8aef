from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tiny_runs
from mindspore import Tensor

from msllm.config.sections import DataConfig
from msllm.data.dataset import RankBatches
from msllm.data.manifest import Manifest
from msllm.data.sampler import RankShare, SampleOrder
from msllm.layers.loss import TokenLoss
from msllm.parallel.reduce import SumOverRanks
from msllm.registry import build_model
from msllm.testing.datasets import counting_rows, write_dataset
from msllm.training.evaluate import Evaluator, RowLoss, evaluation_share

ROWS = 21
TOKENS = counting_rows(ROWS, tiny_runs.SEQ_LENGTH, tiny_runs.VOCAB, seed=5)


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Manifest:
    return write_dataset(tmp_path_factory.mktemp("evaluate") / "data", TOKENS, tiny_runs.VOCAB, shards=2)


@pytest.fixture(scope="module")
def model():
    return build_model(tiny_runs.llama_config())


@pytest.fixture(scope="module")
def row_losses(model) -> np.ndarray:
    """Mean loss of each row, (ROWS,), by another way: all rows at once."""
    logits = model(Tensor(TOKENS[:, :-1])).reshape((-1, tiny_runs.VOCAB))
    return TokenLoss()(logits, Tensor(TOKENS[:, 1:].reshape(-1))).asnumpy().reshape(ROWS, -1).mean(axis=1)


def evaluator(manifest: Manifest, model, share: RankShare, rows: int | None = None) -> Evaluator:
    data = DataConfig(train_dataset="data", seq_length=tiny_runs.SEQ_LENGTH)
    batches = RankBatches(manifest, SampleOrder(manifest.rows, 0, shuffle=False), share, data)
    return Evaluator(RowLoss(model), batches, SumOverRanks(1), rows)


@pytest.mark.parametrize("batch", [4, ROWS])
def test_every_row_counts_once_whatever_the_batch_size(manifest: Manifest, model, row_losses, batch: int):
    assert evaluator(manifest, model, RankShare(batch)).loss() == pytest.approx(row_losses.mean(), rel=1e-6)


def test_only_the_first_rows_count_where_not_all_are_wanted(manifest: Manifest, model, row_losses):
    some = evaluator(manifest, model, RankShare(4), rows=6)
    assert (some.rows, some.steps) == (6, 2)
    assert some.loss() == pytest.approx(row_losses[:6].mean(), rel=1e-6)


def test_the_parts_of_all_ranks_add_up_to_the_whole(manifest: Manifest, model, row_losses):
    parts = [evaluator(manifest, model, RankShare(4, 2, rank)).loss() for rank in (0, 1)]
    assert sum(parts) == pytest.approx(row_losses.mean(), rel=1e-6)


@pytest.mark.parametrize(
    ("rows", "ranks", "batch"), [(100, 2, 8), (8, 2, 8), (7, 2, 6), (3, 2, 2), (1, 2, 2), (5, 1, 5)]
)
def test_a_small_dataset_is_evaluated_in_the_largest_batch_that_it_fills(rows: int, ranks: int, batch: int):
    assert evaluation_share(RankShare(64, ranks), 8, rows).global_batch_size == batch


def test_evaluation_during_training_leaves_the_training_as_it_is(tmp_path: Path):
    data = tiny_runs.write_data(tmp_path / "data")
    config = tiny_runs.write_config(tmp_path / "run.yaml", data, steps=4)
    plain = tiny_runs.train(config, tmp_path / "plain")
    evaluated = tiny_runs.train(config, tmp_path / "eval", f"data.eval_dataset={data}", "training.eval_steps=2")
    assert tiny_runs.losses(evaluated) == tiny_runs.losses(plain)
    assert tiny_runs.weights(evaluated, 4) == tiny_runs.weights(plain, 4)
    lines = tiny_runs.metrics(evaluated, "eval")
    assert [line["step"] for line in lines] == [2, 4]
    assert lines[1]["eval_loss"] < lines[0]["eval_loss"]
    assert lines[0]["perplexity"] == pytest.approx(np.exp(lines[0]["eval_loss"]))
