"""Sums over ranks, and the global norm of gradients that ranks hold in slices."""

from __future__ import annotations

from collections.abc import Sequence

from mindspore import nn
from mindspore.ops import operations as P


class SumOverRanks(nn.Cell):
    """Sum of a tensor over all ranks; the identity on one rank."""

    def __init__(self, size: int):
        super().__init__()
        self.all_reduce = P.AllReduce() if size > 1 else None

    def construct(self, x):
        return x if self.all_reduce is None else self.all_reduce(x)


class MeanOverRanks(nn.Cell):
    """Sum of a tensor over all ranks, divided by the number of ranks that hold one; the identity on one rank.

    Args:
        size: ranks of the job.
        holders: ranks whose value is not zero, None: all.
    """

    def __init__(self, size: int, holders: int | None = None):
        super().__init__()
        self.sum = SumOverRanks(size)
        self.holders = holders or size

    def construct(self, x):
        return self.sum(x) / self.holders


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


class GlobalNorm(nn.Cell):
    """Global L2 norm of all gradients: () float32.

    A rank sums the squares of what it holds, each divided by the number of ranks that hold the same slice, and one AllReduce
    of a scalar makes the sum whole, however the gradients are cut.

    Args:
        replicas: for each gradient, the ranks that hold the same values.
        size: ranks to sum over; 1 where every rank holds all gradients whole.
    """

    def __init__(self, replicas: Sequence[int], size: int = 1):
        super().__init__()
        self.weights = tuple(2.0 / count for count in replicas)
        self.sum = SumOverRanks(size)
        self.l2_loss = P.L2Loss()
        # A tuple into AddN, not a chain of Add: a pipeline stage takes the gradients of other stages out of the tuple.
        self.add_n = P.AddN()
        self.sqrt = P.Sqrt()

    def construct(self, gradients):
        squares: tuple = ()
        for i in range(len(gradients)):
            squares += (self.l2_loss(gradients[i]) * self.weights[i],)
        return self.sqrt(self.sum(self.add_n(squares)))
