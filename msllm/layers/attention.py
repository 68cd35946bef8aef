"""Causal self-attention with grouped key/value heads, with and without a cache of past keys and values."""

from __future__ import annotations

import math
from functools import cache

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn
from mindspore.ops import auto_generate
from mindspore.ops import operations as P

from msllm.layers.backend import fused_kernels
from msllm.layers.linear import Linear
from msllm.layers.rope import RotaryEmbedding

MASKED = -6.0e4
"""Added to the score of a position that must not be seen: a number of float16 too, and exp of it is exactly 0."""


class SelfAttention(nn.Cell):
    """Projections, rotary positions, attention, output projection.

    Args:
        hidden_size: H.
        num_heads: N query heads.
        num_kv_heads: K key/value heads; each serves N / K query heads (Ainslie et al. 2023).
        head_dim: D.
        init, out_init: initializers of the input and the output projections.
        has_bias: biases on all four projections.

    Inputs:
        x (T, H); rotary: (cos, sin), each (1, S, 1, D), or None; start: () int32, the position of the first token, for a
        model with a cache; None while training. S is the length of `x` divided by the batch.
    Outputs: (T, H).
    """

    def __init__(
        self, hidden_size: int, num_heads: int, num_kv_heads: int, head_dim: int, init, out_init, has_bias: bool = False
    ):
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = num_heads, num_kv_heads, head_dim
        self.q_proj = Linear(hidden_size, num_heads * head_dim, init, has_bias)
        self.k_proj = Linear(hidden_size, num_kv_heads * head_dim, init, has_bias)
        self.v_proj = Linear(hidden_size, num_kv_heads * head_dim, init, has_bias)
        self.o_proj = Linear(num_heads * head_dim, hidden_size, out_init, has_bias)
        self.rotary_q = RotaryEmbedding()
        self.rotary_k = RotaryEmbedding()
        self.core: nn.Cell = ComposedAttention(num_heads, head_dim)
        if fused_kernels():
            self.core = FlashAttention(num_heads, head_dim)
        self.cache: nn.Cell | None = None
        self.reshape = P.Reshape()

    def use_float32(self) -> None:
        """Compute in float32, for which there is no fused kernel."""
        self.core = ComposedAttention(self.num_heads, self.head_dim)

    def set_strategy(self, batch: int, heads: int) -> None:
        """Parts of the batch and of the heads; the projections have strategies of their own."""
        self.rotary_q.set_strategy(batch, heads)
        self.rotary_k.set_strategy(batch, heads)
        self.core.set_strategy(batch, heads)

    def construct(self, x, batch, rotary=None, start=None):
        length = x.shape[0] // batch
        q = self.reshape(self.q_proj(x), (batch, length, self.num_heads, self.head_dim))
        k = self.reshape(self.k_proj(x), (batch, length, self.num_kv_heads, self.head_dim))
        v = self.reshape(self.v_proj(x), (batch, length, self.num_kv_heads, self.head_dim))
        if rotary is not None:
            q = self.rotary_q(q, rotary[0], rotary[1])
            k = self.rotary_k(k, rotary[0], rotary[1])
        out = self.core(q, k, v) if self.cache is None else self.cache(q, k, v, start)
        return self.o_proj(self.reshape(out, (batch * length, self.num_heads * self.head_dim)))


class ComposedAttention(nn.Cell):
    """softmax(q k^T / sqrt(D)) v from elementary operations, the softmax in float32.

    The N / K query heads that share a key head are laid into one matrix product, so keys are never copied.

    Inputs: q (B, S, N, D), k and v (B, L, K, D), mask (S, L), None: causal. Outputs: (B, S, N, D).
    """

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.num_heads, self.head_dim = num_heads, head_dim
        self.scale = 1.0 / math.sqrt(head_dim)
        self.heads_first = P.Transpose()
        self.heads_last = P.Transpose()
        self.reshape = P.Reshape()
        self.scores = ScaledScores()
        self.softmax = MaskedSoftmax()
        self.values = WeightedValues()

    def set_strategy(self, batch: int, heads: int) -> None:
        """Parts of the batch and of the heads."""
        self.heads_first.shard(((batch, 1, heads, 1),))
        self.heads_last.shard(((batch, heads, 1, 1),))
        for cell in (self.scores, self.softmax, self.values):
            cell.set_strategy((batch, heads, 1, 1))

    def construct(self, q, k, v, mask=None):
        batch, length = q.shape[0], q.shape[1]
        past, kv_heads = k.shape[1], k.shape[2]
        group = self.num_heads // kv_heads
        q = self.heads_first(q, (0, 2, 1, 3))
        k = self.heads_first(k, (0, 2, 1, 3))
        v = self.heads_first(v, (0, 2, 1, 3))
        q = self.reshape(q, (batch, kv_heads, group * length, self.head_dim))
        scores = self.scores(q, k, self.scale)
        scores = self.reshape(scores, (batch, self.num_heads, length, past))
        if mask is None:
            mask = Tensor(np.triu(np.full((length, length), MASKED, np.float32), 1))
        weights = self.softmax(scores, mask)
        weights = self.reshape(weights, (batch, kv_heads, group * length, past))
        out = self.reshape(self.values(weights, v), (batch, self.num_heads, length, self.head_dim))
        return self.heads_last(out, (0, 2, 1, 3))


class ScaledScores(nn.Cell):
    """(q * scale) k^T. Inputs: q (B, K, S, D), k (B, K, L, D). Outputs: (B, K, S, L)."""

    matrix_product = True

    def __init__(self):
        super().__init__()
        self.mul = P.Mul()
        self.matmul = P.BatchMatMul(transpose_b=True)

    def set_strategy(self, cut: tuple) -> None:
        """Parts of each axis of q and k."""
        self.mul.shard((cut, ()))
        self.matmul.shard((cut, cut))

    def construct(self, q, k, scale):
        return self.matmul(self.mul(q, scale), k)


class MaskedSoftmax(nn.Cell):
    """softmax(scores + mask) over the last axis. Inputs: scores (B, N, S, L), mask (S, L). Outputs: (B, N, S, L)."""

    keep_float32 = True

    def __init__(self):
        super().__init__()
        self.add = P.Add()
        self.softmax = P.Softmax(axis=-1)

    def set_strategy(self, cut: tuple) -> None:
        """Parts of each axis of the scores."""
        self.add.shard((cut, (1, 1)))
        self.softmax.shard((cut,))

    def construct(self, scores, mask):
        return self.softmax(self.add(scores, mask))


class WeightedValues(nn.Cell):
    """weights v. Inputs: weights (B, K, S, L), v (B, K, L, D). Outputs: (B, K, S, D)."""

    matrix_product = True

    def __init__(self):
        super().__init__()
        self.matmul = P.BatchMatMul()

    def set_strategy(self, cut: tuple) -> None:
        """Parts of each axis of weights and v."""
        self.matmul.shard((cut, cut))

    def construct(self, weights, v):
        return self.matmul(weights, v)


class FlashAttention(nn.Cell):
    """Ascend's fused attention: no (S, S) matrix in memory (Dao et al. 2022). Keeps its own sums in float32.

    Inputs: q (B, S, N, D), k and v (B, S, K, D) in float16 or bfloat16. Outputs: (B, S, N, D).
    """

    matrix_product = True
    COMPRESSED_CAUSAL = 2
    """sparse_mode in which one 2048 x 2048 upper triangle stands for the causal mask of any length."""

    def __init__(self, num_heads: int, head_dim: int):
        super().__init__()
        self.flash_attention = auto_generate.FlashAttentionScore(
            head_num=num_heads,
            scale_value=1.0 / math.sqrt(head_dim),
            input_layout="BSND",
            sparse_mode=self.COMPRESSED_CAUSAL,
            next_tokens=0,
        )
        self.mask = compressed_causal_mask()

    def set_strategy(self, batch: int, heads: int) -> None:
        """Parts of the batch and of the heads."""
        cut = (batch, 1, heads, 1)
        self.flash_attention.shard((cut, cut, cut, (1, 1)))

    def construct(self, q, k, v):
        return self.flash_attention(q, k, v, None, None, None, self.mask)[3]


@cache
def compressed_causal_mask() -> Tensor:
    """One for all layers: a constant of 4 MB on the device."""
    return Tensor(np.triu(np.ones((2048, 2048), np.uint8), 1))


class CachedAttention(nn.Cell):
    """Attention of new tokens over all tokens so far, whose keys and values stay on the device.

    The caches are (L, B, K, D) parameters, so that writing S new rows is one scatter.

    Inputs: q (B, S, N, D), k and v (B, S, K, D), start () int32. Outputs: (B, S, N, D).
    """

    def __init__(self, num_heads: int, num_kv_heads: int, head_dim: int, batch: int, length: int, dtype=ms.float32):
        super().__init__()
        shape = (length, batch, num_kv_heads, head_dim)
        self.keys = Parameter(Tensor(np.zeros(shape), dtype), name="keys", requires_grad=False)
        self.values = Parameter(Tensor(np.zeros(shape), dtype), name="values", requires_grad=False)
        self.core = ComposedAttention(num_heads, head_dim)
        self.positions = Tensor(np.arange(length, dtype=np.int32))
        self.scatter = P.ScatterUpdate()
        self.rows_first = P.Transpose()

    def construct(self, q, k, v, start):
        rows = start + self.positions[: q.shape[1]]
        self.scatter(self.keys, rows, self.rows_first(k, (1, 0, 2, 3)))
        self.scatter(self.values, rows, self.rows_first(v, (1, 0, 2, 3)))
        future = (self.positions[None, :] > rows[:, None]).astype(ms.float32)
        keys = self.rows_first(self.keys, (1, 0, 2, 3))
        values = self.rows_first(self.values, (1, 0, 2, 3))
        return self.core(q, keys, values, future * MASKED)
