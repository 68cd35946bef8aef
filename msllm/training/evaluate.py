"""Loss on held-out rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from mindspore import Tensor, nn
from mindspore.ops import operations as P

from msllm.data.dataset import RankBatches
from msllm.data.sampler import RankShare
from msllm.layers.loss import TokenLoss


class RowLoss(nn.Cell):
    """Inputs: tokens (B, S + 1) int32, weight (B,) float32. Outputs: () float32, sum over rows of weight * mean loss."""

    def __init__(self, model: nn.Cell):
        super().__init__(auto_prefix=False)
        self.model = model
        self.loss = TokenLoss()
        self.reshape = P.Reshape()

    def construct(self, tokens, weight):
        logits = self.model(tokens[:, :-1])
        batch, length, vocab = logits.shape
        losses = self.loss(self.reshape(logits, (-1, vocab)), self.reshape(tokens[:, 1:], (-1,)))
        return (self.reshape(losses, (batch, length)).mean(axis=1) * weight).sum()


def evaluation_share(share: RankShare, rows: int) -> RankShare:
    """The training batch, or the largest one that a smaller dataset of `rows` fills."""
    largest = max(1, rows // share.data_parallel) * share.data_parallel
    return replace(share, global_batch_size=min(share.global_batch_size, largest))


class Evaluator:
    """Mean loss over the rows of a dataset, each counted once, whatever the batch size.

    Args:
        model: input_ids (B, S) -> logits (B, S, V).
        batches: this rank's share; rows beyond the dataset's end get weight 0.
        sum_ranks: sums a scalar over the data-parallel ranks.
        max_batches: batches of one evaluation, None: all.
    """

    def __init__(self, model: nn.Cell, batches: RankBatches, sum_ranks: nn.Cell, max_batches: int | None = None):
        self.cell = RowLoss(model)
        self.sum_ranks = sum_ranks
        self.batches = batches
        rows = batches.manifest.rows
        if max_batches:
            rows = min(rows, max_batches * batches.share.global_batch_size)
        self.rows = rows
        self.steps = -(-rows // batches.share.global_batch_size)

    def loss(self, progress: Any = None) -> float:
        """Nats per token; `progress(batches done)` is called after each batch."""
        self.cell.set_train(False)
        total = 0.0
        share = self.batches.share
        for step, batch in enumerate(self.batches.batches(0, self.steps)):
            positions = share.positions(step * share.global_batch_size, 1)
            weight = (positions < self.rows).astype(np.float32)
            total += float(self.sum_ranks(self.cell(Tensor(batch), Tensor(weight))).asnumpy())
            if progress:
                progress(step + 1)
        return total / self.rows
