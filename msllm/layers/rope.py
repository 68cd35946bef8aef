"""Rotary positions (Su et al. 2021) in the layout of Hugging Face's Llama: a head's first half turns with its second."""

from __future__ import annotations

import math

import numpy as np
from mindspore import nn
from mindspore.ops import operations as P


def inverse_frequencies(head_dim: int, theta: float) -> np.ndarray:
    """theta^(-2i/D) for i < D/2: (D/2,) float32."""
    return (1.0 / theta ** (np.arange(0, head_dim, 2, dtype=np.float32) / head_dim)).astype(np.float32)


def scale_linear(frequencies: np.ndarray, factor: float) -> np.ndarray:
    """Position interpolation (Chen et al. 2023): every frequency divided by `factor`."""
    return frequencies / np.float32(factor)


def scale_llama3(
    frequencies: np.ndarray, factor: float, low_freq_factor: float, high_freq_factor: float, original_length: int
) -> np.ndarray:
    """Llama 3.1: long waves are stretched by `factor`, short ones kept, those between blended smoothly."""
    wavelength = 2 * math.pi / frequencies
    blend = (original_length / wavelength - low_freq_factor) / (high_freq_factor - low_freq_factor)
    blend = np.clip(blend, 0.0, 1.0)
    return ((1 - blend) * frequencies / factor + blend * frequencies).astype(np.float32)


def rotary_tables(frequencies: np.ndarray, length: int) -> tuple[np.ndarray, np.ndarray]:
    """cos (L, D) and sin (L, D) in float32; the first half of sin is negated, so that turning needs no negation."""
    angles = np.arange(length, dtype=np.float32)[:, None] * frequencies[None, :]
    cos, sin = np.cos(angles), np.sin(angles)
    return (
        np.concatenate([cos, cos], axis=-1).astype(np.float32),
        np.concatenate([-sin, sin], axis=-1).astype(np.float32),
    )


class RotaryEmbedding(nn.Cell):
    """Turn every head by its position. Inputs: x (B, S, N, D), cos and sin (1, S, 1, D). Outputs: (B, S, N, D)."""

    def __init__(self):
        super().__init__()
        self.split = P.Split(axis=3, output_num=2)
        self.concat = P.Concat(axis=3)
        self.mul_cos = P.Mul()
        self.mul_sin = P.Mul()
        self.add = P.Add()

    def set_strategy(self, batch: int, heads: int) -> None:
        """Parts of the batch and of the heads."""
        cut, whole = (batch, 1, heads, 1), (1, 1, 1, 1)
        self.split.shard((cut,))
        self.concat.shard((cut, cut))
        self.mul_cos.shard((cut, whole))
        self.mul_sin.shard((cut, whole))
        self.add.shard((cut, cut))

    def construct(self, x, cos, sin):
        first, second = self.split(x)
        return self.add(self.mul_cos(x, cos), self.mul_sin(self.concat((second, first)), sin))
