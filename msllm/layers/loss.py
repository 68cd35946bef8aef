"""Cross entropy over the vocabulary."""

from __future__ import annotations

import mindspore as ms
from mindspore import Tensor, nn, ops
from mindspore.ops import operations as P

from msllm.layers.backend import on_ascend


class CrossEntropyLoss(nn.Cell):
    """Mean over tokens of -log softmax(logits)[label], in float32 whatever the precision of the rest.

    Inputs: logits (T, V); labels (T,) int32, each in [0, V). Outputs: () float32, in nats.
    """

    keep_float32 = True

    def __init__(self):
        super().__init__()
        self.cross_entropy = P.SparseSoftmaxCrossEntropyWithLogits()
        if on_ascend():
            self.cross_entropy = CutCrossEntropy()

    def set_strategy(self, rows: int, vocab: int) -> None:
        """Parts of the tokens and of the vocabulary."""
        self.cross_entropy.set_strategy(rows, vocab)

    def construct(self, logits, labels):
        return self.cross_entropy(logits, labels)


class CutCrossEntropy(nn.Cell):
    """The same from operations that can be cut along the vocabulary."""

    def __init__(self):
        super().__init__()
        self.token_loss = CutTokenLoss()
        self.mean = P.ReduceMean()

    def set_strategy(self, rows: int, vocab: int) -> None:
        """Parts of the tokens and of the vocabulary."""
        self.token_loss.set_strategy(rows, vocab)
        self.mean.shard(((rows,),))

    def construct(self, logits, labels):
        return self.mean(self.token_loss(logits, labels), 0)


class TokenLoss(nn.Cell):
    """-log softmax(logits)[label] of every token. Inputs: logits (T, V), labels (T,) int32. Outputs: (T,) float32."""

    keep_float32 = True

    def __init__(self):
        super().__init__()
        self.token_loss = CutTokenLoss() if on_ascend() else GatheredTokenLoss()

    def set_strategy(self, rows: int, vocab: int) -> None:
        """Parts of the tokens and of the vocabulary. Ascend only."""
        self.token_loss.set_strategy(rows, vocab)

    def construct(self, logits, labels):
        return self.token_loss(logits.astype(ms.float32), labels)


class GatheredTokenLoss(nn.Cell):
    """TokenLoss from the whole row of logits."""

    def __init__(self):
        super().__init__()
        self.log_softmax = P.LogSoftmax(axis=-1)
        self.gather = P.GatherD()
        self.reshape = P.Reshape()

    def construct(self, logits, labels):
        log_probs = self.log_softmax(logits)
        return -self.reshape(self.gather(log_probs, 1, self.reshape(labels, (-1, 1))), (-1,))


class CutTokenLoss(nn.Cell):
    """TokenLoss from operations that can be cut along the vocabulary: no device sees a whole row of logits.

    What travels between the devices is the largest logit, the sum of exponentials and the label's logit of each token.
    """

    def __init__(self):
        super().__init__()
        self.max = P.ReduceMax(keep_dims=True)
        self.shift = P.Sub()
        self.exp = P.Exp()
        self.sum_exp = P.ReduceSum()
        self.log = P.Log()
        self.one_hot = P.OneHot()
        self.pick = P.Mul()
        self.sum_picked = P.ReduceSum()
        self.difference = P.Sub()
        self.on, self.off = Tensor(1.0, ms.float32), Tensor(0.0, ms.float32)

    def set_strategy(self, rows: int, vocab: int) -> None:
        """Parts of the tokens and of the vocabulary."""
        cut = (rows, vocab)
        for primitive in (self.max, self.exp, self.sum_exp, self.sum_picked):
            primitive.shard((cut,))
        self.shift.shard((cut, (rows, 1)))
        self.one_hot.shard((cut, (), ()))
        self.pick.shard((cut, cut))
        self.log.shard(((rows,),))
        self.difference.shard(((rows,), (rows,)))

    def construct(self, logits, labels):
        shifted = self.shift(logits, ops.stop_gradient(self.max(logits, -1)))
        normalizer = self.log(self.sum_exp(self.exp(shifted), -1))
        picked = self.pick(shifted, self.one_hot(labels, logits.shape[-1], self.on, self.off))
        return self.difference(normalizer, self.sum_picked(picked, -1))
