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

    def construct(self, x):
        y = self.matmul(x, self.weight)
        return y if self.bias is None else self.add(y, self.bias)
