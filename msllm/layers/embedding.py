"""Token embedding, and the head that predicts tokens with an embedding's matrix."""

from __future__ import annotations

from mindspore import Parameter, nn
from mindspore.common.initializer import initializer
from mindspore.ops import operations as P


class Embedding(nn.Cell):
    """Rows of a table. An id outside the table is not caught here: the loader and `msllm data verify` do that.

    Inputs: ids (...) int32. Outputs: (..., H).
    """

    def __init__(self, num_embeddings: int, hidden_size: int, init):
        super().__init__()
        self.weight = Parameter(initializer(init, [num_embeddings, hidden_size]), name="weight")
        self.gather = P.Gather()

    def set_strategy(self, weight: tuple, ids: tuple) -> None:
        """Parts of each axis of weight and ids."""
        self.weight.cut = weight
        self.gather.shard((weight, ids))

    def construct(self, ids):
        return self.gather(self.weight, ids, 0)


class TiedHead(nn.Cell):
    """Logits from the embedding's own matrix. Inputs: x (T, H), weight (V, H). Outputs: (T, V)."""

    matrix_product = True

    def __init__(self):
        super().__init__()
        self.matmul = P.MatMul(transpose_b=True)

    def set_strategy(self, x: tuple, weight: tuple) -> None:
        """Parts of each axis of x and weight; the logits are cut as both are."""
        self.matmul.shard((x, weight))

    def construct(self, x, weight):
        return self.matmul(x, weight)
