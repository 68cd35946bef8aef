"""How batches reach the step: one by one from the host, or through Ascend's data queue, several steps at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import mindspore as ms
import numpy as np
from mindspore import Tensor

from msllm.data.dataset import RankBatches
from msllm.errors import InputError
from msllm.training.step import StepOutput


@dataclass(frozen=True)
class Fed:
    """Steps that were made between two looks from the host."""

    steps: int
    """How many."""
    loss: Tensor
    """Of the last one, as the step cell returned it."""
    values: dict[str, float]
    """The fields of `StepOutput` of the last one."""
    data_seconds: float
    """Waiting for batches, as far as the host sees it."""
    compute_seconds: float
    """From the batch to the numbers."""


class Feed(Protocol):
    """Makes steps from a global position on; `begin(steps, tokens)` is called before each look at the device."""

    def run(self, position: int, steps: int, begin: Callable[[int, Any], None]) -> Iterator[Fed]:
        """Make `steps` steps."""


class HostFeed:
    """One batch, one step, one look."""

    def __init__(self, step_cell: Any, batches: RankBatches):
        self.step_cell, self.batches = step_cell, batches

    def run(self, position: int, steps: int, begin: Callable[[int, Any], None]) -> Iterator[Fed]:
        """Make `steps` steps; `begin` is given the batch."""
        mark = time.perf_counter()
        for batch in self.batches.batches(position, steps):
            ready = time.perf_counter()
            tokens = Tensor(batch)
            begin(1, tokens)
            output = StepOutput(*self.step_cell(tokens))
            values = _numbers(output)
            yield Fed(1, output.loss, values, ready - mark, time.perf_counter() - ready)
            mark = time.perf_counter()


class SinkFeed:
    """MindSpore's data sink: batches go to the device by themselves and the host looks every `sink_size` steps.

    What an earlier step of a sink did shows in the state only: weights, loss scale and the count of skipped steps.
    """

    def __init__(self, step_cell: Any, batches: RankBatches, sink_size: int):
        self.step_cell, self.batches, self.sink_size = step_cell, batches, sink_size
        if sink_size > batches.window_steps:
            raise InputError(
                f"training.sink_size ({sink_size}) needs {sink_size * batches.share.local_batch_size} rows at once, and "
                f"{batches.manifest.directory} has {batches.manifest.rows}; set it to {batches.window_steps} or less"
            )

    def run(self, position: int, steps: int, begin: Callable[[int, Any], None]) -> Iterator[Fed]:
        """Make `steps` steps, a multiple of `sink_size`; `begin` is given no batch, since the host never sees it."""
        window = self.batches.window_steps // self.sink_size * self.sink_size
        while steps > 0:
            count = min(steps, window)
            dataset = self.batches.dataset(position, count)
            sink = ms.data_sink(self.step_cell, dataset, self.sink_size, jit_config=ms.JitConfig())
            for _ in range(count // self.sink_size):
                begin(self.sink_size, None)
                started = time.perf_counter()
                output = StepOutput(*sink())
                values = _numbers(output)
                yield Fed(self.sink_size, output.loss, values, 0.0, time.perf_counter() - started)
            position += count * self.batches.share.global_batch_size
            steps -= count


def _numbers(output: StepOutput) -> dict[str, float]:
    """The outputs on the host; constants of the graph come back as Python numbers already."""
    raw = {name: getattr(output, name) for name in StepOutput._fields}
    return {name: float(np.asarray(v.asnumpy() if isinstance(v, Tensor) else v)) for name, v in raw.items()}
