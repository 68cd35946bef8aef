"""The loss of a language model as a function of rows of tokens."""

from __future__ import annotations

import mindspore as ms
from mindspore import nn
from mindspore.ops import operations as P

from msllm.layers.loss import CrossEntropyLoss


class LanguageModelLoss(nn.Cell):
    """Rows of S + 1 tokens -> loss of predicting each token from those before it.

    Args:
        model: input_ids (B, S) -> logits (B, S, V).
        loss: of logits (B S, V) float32 and labels (B S,); the mean over all tokens where it is left out.

    Inputs: tokens (B, S + 1) int32. Outputs: what `loss` gives.
    """

    def __init__(self, model: nn.Cell, loss: nn.Cell | None = None):
        super().__init__(auto_prefix=False)
        self.model = model
        self.loss = loss or CrossEntropyLoss()
        self.inputs = P.StridedSlice()
        self.targets = P.StridedSlice()
        self.reshape = P.Reshape()

    def set_strategy(self, rows: int, vocab: int) -> None:
        """Parts of the batch and of the vocabulary; the model has its own strategies."""
        self.inputs.shard(((rows, 1),))
        self.targets.shard(((rows, 1),))
        self.loss.set_strategy(rows, vocab)

    def construct(self, tokens):
        rows, width = tokens.shape
        logits = self.model(self.inputs(tokens, (0, 0), (rows, width - 1), (1, 1)))
        logits = self.reshape(logits, (-1, logits.shape[-1]))
        labels = self.reshape(self.targets(tokens, (0, 1), (rows, width), (1, 1)), (-1,))
        # to_float is applied to `model` alone; the loss starts from float32 whatever comes out of it.
        return self.loss(logits.astype(ms.float32), labels)


class ReusedLoss(LanguageModelLoss):
    """The same, compiled once for all micro batches instead of once for each. Ascend only."""

    @ms.lazy_inline
    def __init__(self, model: nn.Cell):
        super().__init__(model)
