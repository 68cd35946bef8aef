"""The two feed-forward blocks. Inputs and outputs: (T, H); inside (T, F)."""

from __future__ import annotations

from mindspore import nn
from mindspore.ops import auto_generate
from mindspore.ops import operations as P

from msllm.layers.linear import Linear


class GatedFeedForward(nn.Cell):
    """SwiGLU (Shazeer 2020): down(silu(gate(x)) * up(x))."""

    def __init__(self, hidden_size: int, intermediate_size: int, init, down_init):
        super().__init__()
        self.gate_proj = Linear(hidden_size, intermediate_size, init)
        self.up_proj = Linear(hidden_size, intermediate_size, init)
        self.down_proj = Linear(intermediate_size, hidden_size, down_init)
        self.silu = auto_generate.SiLU()
        self.mul = P.Mul()

    def set_strategy(self, inner: tuple) -> None:
        """Parts of each axis of the (T, F) activations; the projections have strategies of their own."""
        self.silu.shard((inner,))
        self.mul.shard((inner, inner))

    def construct(self, x):
        return self.down_proj(self.mul(self.silu(self.gate_proj(x)), self.up_proj(x)))


class FeedForward(nn.Cell):
    """GPT-2's: c_proj(gelu(c_fc(x))), gelu by its tanh approximation (Hendrycks and Gimpel 2016)."""

    def __init__(self, hidden_size: int, intermediate_size: int, init, down_init):
        super().__init__()
        self.c_fc = Linear(hidden_size, intermediate_size, init, has_bias=True)
        self.c_proj = Linear(intermediate_size, hidden_size, down_init, has_bias=True)
        self.gelu = P.GeLU()

    def set_strategy(self, inner: tuple) -> None:
        """Parts of each axis of the (T, F) activations; the projections have strategies of their own."""
        self.gelu.shard((inner,))

    def construct(self, x):
        return self.c_proj(self.gelu(self.c_fc(x)))
