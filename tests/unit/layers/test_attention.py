from __future__ import annotations

import math

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn

from msllm.layers import rope
from msllm.layers.attention import CachedAttention, ComposedAttention, SelfAttention
from msllm.layers.rope import RotaryEmbedding

B, S, N, K, D = 2, 7, 4, 2, 8


def projections(seed: int = 0, length: int = S) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    q = random.normal(size=(B, length, N, D)).astype(np.float32)
    k, v = random.normal(size=(2, B, length, K, D)).astype(np.float32)
    return q, k, v


def attention_in_numpy(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """One head at a time, one position at a time, over the positions up to it."""
    out = np.zeros(q.shape, np.float64)
    group = q.shape[2] // k.shape[2]
    for b, i, n in np.ndindex(*q.shape[:3]):
        keys, values = k[b, : i + 1, n // group], v[b, : i + 1, n // group]
        scores = keys.astype(np.float64) @ q[b, i, n] / math.sqrt(q.shape[3])
        weights = np.exp(scores - scores.max())
        out[b, i, n] = (weights / weights.sum()) @ values
    return out


def test_attention_equals_its_definition():
    q, k, v = projections()
    out = ComposedAttention(N, D)(Tensor(q), Tensor(k), Tensor(v)).asnumpy()
    np.testing.assert_allclose(out, attention_in_numpy(q, k, v), rtol=1e-4, atol=1e-5)


def test_grouped_heads_equal_repeated_heads():
    q, k, v = projections()
    core = ComposedAttention(N, D)
    grouped = core(Tensor(q), Tensor(k), Tensor(v)).asnumpy()
    repeated = core(Tensor(q), Tensor(np.repeat(k, N // K, axis=2)), Tensor(np.repeat(v, N // K, axis=2))).asnumpy()
    np.testing.assert_allclose(grouped, repeated, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("changed", [1, 4, S - 1])
def test_a_token_changes_nothing_before_it(changed: int):
    q, k, v = projections()
    core = ComposedAttention(N, D)
    before = core(Tensor(q), Tensor(k), Tensor(v)).asnumpy()
    for array in (q, k, v):
        array[:, changed] += 1000.0
    after = core(Tensor(q), Tensor(k), Tensor(v)).asnumpy()
    assert np.array_equal(before[:, :changed], after[:, :changed])
    assert (before[:, changed:] != after[:, changed:]).any(axis=(0, 2, 3)).all()


def test_the_first_token_sees_itself_alone():
    q, k, v = projections()
    out = ComposedAttention(N, D)(Tensor(q), Tensor(k), Tensor(v)).asnumpy()
    np.testing.assert_allclose(out[:, 0], np.repeat(v[:, 0], N // K, axis=1), rtol=1e-6)


@pytest.mark.parametrize("pieces", [[S], [1] * S, [4, 1, 2]])
def test_attention_in_pieces_through_the_cache_equals_attention_at_once(pieces: list[int]):
    q, k, v = projections()
    cache = CachedAttention(N, K, D, batch=B, length=S + 3)
    out, start = [], 0
    for size in pieces:
        part = slice(start, start + size)
        tensors = [Tensor(np.ascontiguousarray(array[:, part])) for array in (q, k, v)]
        out.append(cache(*tensors, Tensor(start, ms.int32)).asnumpy())
        start += size
    np.testing.assert_allclose(np.concatenate(out, axis=1), attention_in_numpy(q, k, v), rtol=1e-4, atol=1e-5)


def test_what_the_cache_held_beyond_the_position_does_not_matter():
    q, k, v = projections()
    cache = CachedAttention(N, K, D, batch=B, length=S)
    tensors = [Tensor(array) for array in (q, k, v)]
    first = cache(*tensors, Tensor(0, ms.int32)).asnumpy()
    again = cache(*[Tensor(np.ascontiguousarray(array[:, :3])) for array in (q, k, v)], Tensor(0, ms.int32)).asnumpy()
    np.testing.assert_allclose(again, first[:, :3], rtol=1e-5, atol=1e-6)


def turned(x: np.ndarray, positions: np.ndarray, theta: float = 10000.0) -> np.ndarray:
    """Rotary positions by complex numbers: pair (i, i + D/2) turns by position * theta^(-2i/D)."""
    half = x.shape[-1] // 2
    angle = positions[:, None] * theta ** (-np.arange(half) / half)
    z = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angle)[None, :, None, :]
    return np.concatenate([z.real, z.imag], axis=-1)


def rotary_tables(length: int, start: int = 0) -> tuple[Tensor, Tensor]:
    cos, sin = rope.rotary_tables(rope.inverse_frequencies(D, 10000.0), start + length)
    return tuple(Tensor(table[start:].reshape(1, length, 1, D)) for table in (cos, sin))


def test_rotary_positions_turn_pairs_by_their_position():
    q, _, _ = projections()
    out = RotaryEmbedding()(Tensor(q), *rotary_tables(S)).asnumpy()
    np.testing.assert_allclose(out, turned(q, np.arange(S)), rtol=1e-4, atol=1e-5)


def test_scores_depend_on_the_distance_of_positions_alone():
    q, k, _ = projections()
    turn = RotaryEmbedding()

    def scores(start: int) -> np.ndarray:
        tables = rotary_tables(S, start)
        a, b = turn(Tensor(q), *tables).asnumpy(), turn(Tensor(k), *tables).asnumpy()
        return np.einsum("bqnd,bknd->bnqk", a[:, :, :K], b)

    np.testing.assert_allclose(scores(0), scores(50), rtol=1e-3, atol=1e-4)


def test_linear_scaling_divides_every_position():
    frequencies = rope.inverse_frequencies(D, 10000.0)
    stretched, _ = rope.rotary_tables(rope.scale_linear(frequencies, 4.0), 9)
    plain, _ = rope.rotary_tables(frequencies, 3)
    np.testing.assert_allclose(stretched[[0, 4, 8]], plain, rtol=1e-6)


def test_llama3_scaling_keeps_short_waves_and_stretches_long_ones():
    frequencies = rope.inverse_frequencies(128, 500000.0)
    scaled = rope.scale_llama3(frequencies, 8.0, 1.0, 4.0, 8192)
    wavelength = 2 * math.pi / frequencies
    short, long = wavelength < 8192 / 4, wavelength > 8192
    assert np.array_equal(scaled[short], frequencies[short])
    np.testing.assert_allclose(scaled[long], frequencies[long] / 8, rtol=1e-6)
    between = ~short & ~long
    assert between.any() and (scaled[between] < frequencies[between]).all()
    assert (scaled[between] > frequencies[between] / 8).all()


class Attention(nn.Cell):
    def __init__(self, has_bias: bool):
        super().__init__()
        self.attention = SelfAttention(N * D, N, K, D, "normal", "normal", has_bias)

    def construct(self, x):
        return self.attention(x, B)


@pytest.mark.parametrize("has_bias", [False, True])
def test_self_attention_takes_and_gives_rows_of_tokens(has_bias: bool):
    x = np.random.default_rng(0).normal(size=(B * S, N * D)).astype(np.float32)
    cell = Attention(has_bias)
    assert cell(Tensor(x)).shape == (B * S, N * D)
    names = {name.split(".")[-1] for name in cell.parameters_dict()}
    assert names == ({"weight", "bias"} if has_bias else {"weight"})


def test_sequences_of_a_batch_do_not_see_each_other():
    x = np.random.default_rng(0).normal(size=(B * S, N * D)).astype(np.float32)
    cell = Attention(False)
    before = cell(Tensor(x)).asnumpy()
    x[S:] += 10.0
    assert np.array_equal(cell(Tensor(x)).asnumpy()[:S], before[:S])
