"""Cross entropy over the vocabulary."""

from __future__ import annotations

import mindspore as ms
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


class TokenLoss(nn.Cell):
    """-log softmax(logits)[label] of every token. Inputs: logits (T, V), labels (T,) int32. Outputs: (T,) float32."""

    keep_float32 = True

    def __init__(self):
        super().__init__()
        self.log_softmax = P.LogSoftmax(axis=-1)
        self.gather = P.GatherD()
        self.reshape = P.Reshape()

    def construct(self, logits, labels):
        log_probs = self.log_softmax(logits.astype(ms.float32))
        return -self.reshape(self.gather(log_probs, 1, self.reshape(labels, (-1, 1))), (-1,))
