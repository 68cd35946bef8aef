"""Linear projection."""

from __future__ import annotations

from mindspore import Parameter, nn
from mindspore.common.initializer import initializer
from mindspore.ops import operations as P


class Linear(nn.Cell):
    """y = x W^T + b.

    Args:
        in_features: columns of the weight.
        out_features: rows of the weight.
        has_bias: add a vector of `out_features`.
        init: initializer of the weight.

    Inputs: x (T, in_features). Outputs: (T, out_features).
    """

    matrix_product = True

    def __init__(self, in_features: int, out_features: int, init, has_bias: bool = False):
        super().__init__()
        self.weight = Parameter(initializer(init, [out_features, in_features]), name="weight")
        self.bias = Parameter(initializer("zeros", [out_features]), name="bias") if has_bias else None
        self.matmul = P.MatMul(transpose_b=True)
        self.add = P.Add()

    def set_strategy(self, x: tuple, weight: tuple, out: tuple | None = None) -> None:
        """Parts of each axis of x, weight and the result; a result cut further than the product is reduce-scattered."""
        self.weight.cut = weight
        if self.bias is not None:
            self.bias.cut = weight[:1]
        product = (x[0], weight[0])
        out = out or product
        # MindSpore takes an output layout only where the product itself has partial sums to reduce.
        self.matmul.shard((x, weight), (out,) if out != product else None)
        self.add.shard((out, out[1:]))

    def construct(self, x):
        y = self.matmul(x, self.weight)
        return y if self.bias is None else self.add(y, self.bias)
