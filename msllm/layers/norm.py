"""Normalisation over the hidden size. Both stay in float32: squares overflow float16 above 255."""

from __future__ import annotations

import mindspore as ms
from mindspore import Parameter, nn
from mindspore.common.initializer import initializer
from mindspore.ops import operations as P

from msllm.layers.backend import fused_kernels


class RMSNorm(nn.Cell):
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019). Inputs and outputs: (T, H)."""

    keep_float32 = True

    def __init__(self, hidden_size: int, eps: float):
        super().__init__()
        self.weight = Parameter(initializer("ones", [hidden_size]), name="weight")
        self.normalize = FusedRMS(eps) if fused_kernels() else ComposedRMS(eps)

    def set_strategy(self, rows: int) -> None:
        """Parts of the rows of x."""
        self.normalize.set_strategy(rows)

    def construct(self, x):
        return self.normalize(x, self.weight)


class FusedRMS(nn.Cell):
    """Ascend's one kernel."""

    def __init__(self, eps: float):
        super().__init__()
        self.rms_norm = P.RmsNorm(eps)

    def set_strategy(self, rows: int) -> None:
        """Parts of the rows of x."""
        self.rms_norm.shard(((rows, 1), (1,)))

    def construct(self, x, weight):
        return self.rms_norm(x, weight)[0]


class ComposedRMS(nn.Cell):
    """The same from elementary operations; like the kernel, it sums in float32 whatever comes in."""

    def __init__(self, eps: float):
        super().__init__()
        self.eps = eps
        self.square = P.Square()
        self.mean = P.ReduceMean(keep_dims=True)
        self.add = P.Add()
        self.rsqrt = P.Rsqrt()
        self.mul = P.Mul()
        self.mul_weight = P.Mul()

    def set_strategy(self, rows: int) -> None:
        """Parts of the rows of x."""
        cut = (rows, 1)
        self.square.shard((cut,))
        self.mean.shard((cut,))
        self.add.shard((cut, ()))
        self.rsqrt.shard((cut,))
        self.mul.shard((cut, cut))
        self.mul_weight.shard((cut, (1,)))

    def construct(self, x, weight):
        x32 = x.astype(ms.float32)
        scale = self.rsqrt(self.add(self.mean(self.square(x32), -1), self.eps))
        return self.mul_weight(self.mul(x32, scale).astype(x.dtype), weight)


class LayerNorm(nn.Cell):
    """(x - mean) / sqrt(var + eps) * weight + bias (Ba et al. 2016). Inputs and outputs: (T, H)."""

    keep_float32 = True

    def __init__(self, hidden_size: int, eps: float):
        super().__init__()
        self.weight = Parameter(initializer("ones", [hidden_size]), name="weight")
        self.bias = Parameter(initializer("zeros", [hidden_size]), name="bias")
        self.layer_norm = P.LayerNorm(begin_norm_axis=-1, begin_params_axis=-1, epsilon=eps)

    def set_strategy(self, rows: int) -> None:
        """Parts of the rows of x."""
        self.layer_norm.shard(((rows, 1), (1,), (1,)))

    def construct(self, x):
        return self.layer_norm(x, self.weight, self.bias)[0]
