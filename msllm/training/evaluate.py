"""Loss on held-out rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.ops import operations as P

from msllm.data.dataset import RankBatches
from msllm.data.sampler import RankShare
from msllm.layers.loss import TokenLoss
from msllm.training.loss import LanguageModelLoss


class RowLoss(nn.Cell):
    """Sum over the rows that count of their mean loss.

    Inputs: rows (B, S + 2) int32, S + 1 tokens and then 1 where the row counts, 0 where not: one input, as MindSpore's
    parallel mode has one strategy for the inputs of all graphs. Outputs: () float32.
    """

    def __init__(self, model: nn.Cell):
        super().__init__(auto_prefix=False)
        self.token_losses = LanguageModelLoss(model, TokenLoss())
        self.tokens = P.StridedSlice()
        self.counts = P.StridedSlice()
        self.reshape = P.Reshape()
        self.cast = P.Cast()
        self.mean = P.ReduceMean()
        self.mul = P.Mul()
        self.sum = P.ReduceSum()

    def set_strategy(self, rows: int, vocab: int) -> None:
        """Parts of the batch and of the vocabulary; the model has its own strategies."""
        self.token_losses.set_strategy(rows, vocab)
        self.tokens.shard(((rows, 1),))
        self.counts.shard(((rows, 1),))
        self.cast.shard(((rows,),))
        self.mean.shard(((rows, 1),))
        self.mul.shard(((rows,), (rows,)))
        self.sum.shard(((rows,),))

    def construct(self, rows):
        batch, width = rows.shape
        losses = self.token_losses(self.tokens(rows, (0, 0), (batch, width - 1), (1, 1)))
        of_rows = self.mean(self.reshape(losses, (batch, width - 2)), 1)
        counts = self.reshape(self.counts(rows, (0, width - 1), (batch, width), (1, 1)), (-1,))
        return self.sum(self.mul(of_rows, self.cast(counts, ms.float32)), 0)


def evaluation_share(share: RankShare, batch_size: int, rows: int) -> RankShare:
    """`share` of batches of `batch_size` rows, or of the largest ones that a smaller dataset of `rows` fills."""
    largest = max(1, rows // share.data_parallel) * share.data_parallel
    return replace(share, global_batch_size=min(batch_size, largest))


class Evaluator:
    """Mean loss over the rows of a dataset, each counted once, whatever the batch size.

    Args:
        row_loss: a `RowLoss`.
        batches: this rank's share; rows beyond those that count fill up the last batch.
        sum_ranks: of a rank's sum, that over all ranks; None where `row_loss` gives that.
        rows: how many of the dataset's rows count, from the first one; None: all.
    """

    def __init__(self, row_loss: nn.Cell, batches: RankBatches, sum_ranks: nn.Cell | None, rows: int | None = None):
        self.cell = row_loss
        self.sum_ranks = sum_ranks
        self.batches = batches
        self.rows = min(rows or batches.manifest.rows, batches.manifest.rows)
        self.steps = -(-self.rows // batches.share.global_batch_size)

    def loss(self, progress: Any = None) -> float:
        """Nats per token; `progress(batches done)` is called after each batch."""
        self.cell.set_train(False)
        total = 0.0
        share = self.batches.share
        for step, batch in enumerate(self.batches.batches(0, self.steps)):
            counts = share.positions(step * share.global_batch_size, 1) < self.rows
            rows = np.concatenate([batch, counts[:, None].astype(np.int32)], axis=1)
            loss = self.cell(Tensor(rows))
            total += float((self.sum_ranks(loss) if self.sum_ranks else loss).asnumpy())
            if progress:
                progress(step + 1)
        return total / self.rows
