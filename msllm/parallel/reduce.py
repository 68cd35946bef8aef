"""Sums over the data-parallel ranks."""

from __future__ import annotations

from mindspore import nn
from mindspore.ops import operations as P


class MeanOverRanks(nn.Cell):
    """Mean of a tensor over all ranks; the identity on one rank."""

    def __init__(self, size: int):
        super().__init__()
        self.size = size
        self.all_reduce = P.AllReduce() if size > 1 else None

    def construct(self, x):
        if self.all_reduce is None:
            return x
        return self.all_reduce(x) / self.size


class SumOverRanks(nn.Cell):
    """Sum of a tensor over all ranks; the identity on one rank."""

    def __init__(self, size: int):
        super().__init__()
        self.all_reduce = P.AllReduce() if size > 1 else None

    def construct(self, x):
        return x if self.all_reduce is None else self.all_reduce(x)


class GradientSum(nn.Cell):
    """Sum of every gradient over the data-parallel ranks; the identity on one rank.

    The division is left to the caller, who multiplies each gradient by one factor anyway.
    """

    def __init__(self, size: int):
        super().__init__()
        self.all_reduce = P.AllReduce() if size > 1 else None

    def construct(self, gradients):
        if self.all_reduce is None:
            return gradients
        return [self.all_reduce(gradient) for gradient in gradients]
