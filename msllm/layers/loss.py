"""Cross entropy over the vocabulary."""

from __future__ import annotations

from mindspore import nn
from mindspore.ops import operations as P


class CrossEntropyLoss(nn.Cell):
    """Mean over tokens of -log softmax(logits)[label], in float32 whatever the precision of the rest.

    Inputs: logits (T, V); labels (T,) int32, each in [0, V). Outputs: () float32, in nats.
    """

    keep_float32 = True

    def __init__(self):
        super().__init__()
        self.cross_entropy = P.SparseSoftmaxCrossEntropyWithLogits()

    def construct(self, logits, labels):
        return self.cross_entropy(logits, labels)
