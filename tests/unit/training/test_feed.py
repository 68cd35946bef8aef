"""The two feeds make the same steps. MindSpore sinks data on Ascend only, so its `data_sink` is played here by its contract:
each call runs the function on the dataset's next `sink_size` batches and returns what the last one gave."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
import tiny_runs

from msllm.config.sections import DataConfig
from msllm.data.dataset import RankBatches
from msllm.data.sampler import RankShare, SampleOrder
from msllm.errors import InputError
from msllm.testing.datasets import counting_rows, write_dataset
from msllm.training.feed import HostFeed, SinkFeed
from msllm.training.step import StepOutput


class Recorder:
    """In the place of a step cell: the loss is the sum of the tokens."""

    def __init__(self):
        self.sums: list[float] = []

    def __call__(self, tokens):
        total = float(tokens.asnumpy().sum())
        self.sums.append(total)
        return StepOutput(ms.Tensor(total), ms.Tensor(total), ms.Tensor(0.0), ms.Tensor(0.1), 1.0, True, ms.Tensor(0))


@pytest.fixture
def batches(tmp_path) -> RankBatches:
    manifest = write_dataset(tmp_path / "data", counting_rows(20, 8, 50), 50)
    return RankBatches(
        manifest, SampleOrder(20, seed=3), RankShare(4), DataConfig(train_dataset=str(tmp_path / "data"), seq_length=8)
    )


def run(feed, steps: int) -> tuple[list[tuple[int, float]], list[tuple[int, bool]]]:
    begun = []
    fed = feed.run(8, steps, lambda count, tokens: begun.append((count, tokens is None)))
    return [(one.steps, one.values["loss"]) for one in fed], begun


def test_the_sink_makes_the_steps_of_the_host_and_shows_every_last_one(batches, monkeypatch):
    monkeypatch.setattr(ms, "data_sink", tiny_runs.played_data_sink, raising=False)
    host, sink = Recorder(), Recorder()
    one_by_one, _ = run(HostFeed(host, batches), 12)
    together, begun = run(SinkFeed(sink, batches, 4), 12)
    assert sink.sums == host.sums and len(host.sums) == 12
    assert together == [(4, loss) for _, loss in one_by_one[3::4]]
    assert begun == [(4, True)] * 3


def test_the_host_gives_each_batch_to_the_callbacks(batches):
    steps, begun = run(HostFeed(Recorder(), batches), 3)
    assert [count for count, _ in steps] == [1, 1, 1]
    assert begun == [(1, False)] * 3


def test_constants_of_the_graph_become_numbers(batches):
    feed = HostFeed(Recorder(), batches)
    values = next(feed.run(0, 1, lambda count, tokens: None)).values
    assert values["loss_scale"] == 1.0 and values["finite"] == 1.0 and np.isclose(values["lr"], 0.1)


def test_a_sink_larger_than_the_dataset_is_refused_with_what_fits(batches):
    with pytest.raises(InputError, match=r"sink_size \(6\) needs 24 rows at once, and .* has 20; set it to 5 or less"):
        SinkFeed(Recorder(), batches, 6)
