"""The order of samples: a pure function of (rows, seed, position), the same on every rank, version and machine.

Position is the count of global samples seen since the run began. Sample p belongs to epoch p // rows and is row
permutation[epoch](p % rows). The permutation is a four-round Feistel network with cycle walking (Black and Rogaway 2002):
any of its values is computed alone, so that nothing is stored and a run resumes at any position at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

ROUNDS = 4
_GOLDEN = 0x9E3779B97F4A7C15


def _mix(x: np.ndarray) -> np.ndarray:
    """The finalizer of SplitMix64 (Steele et al. 2014): (n,) uint64 -> (n,) uint64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _feistel(x: np.ndarray, keys: np.ndarray, half_bits: int) -> np.ndarray:
    """A bijection of [0, 4^half_bits): (n,) uint64 -> (n,) uint64."""
    shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
    left, right = x >> shift, x & mask
    for key in keys:
        left, right = right, left ^ (_mix(right ^ key) & mask)
    return (left << shift) | right


def permuted(values: np.ndarray, size: int, key: int) -> np.ndarray:
    """Where `values`, each in [0, size), go under the permutation of [0, size) that `key` names: int64 -> int64."""
    if size < 1:
        raise ValueError(f"size ({size}) must be at least 1")
    half_bits = max(1, ((size - 1).bit_length() + 1) // 2)
    with np.errstate(over="ignore"):
        seeds = np.uint64(key % 2**64) + np.arange(1, ROUNDS + 1, dtype=np.uint64) * np.uint64(_GOLDEN)
        keys = _mix(seeds)
        out = _feistel(values.astype(np.uint64), keys, half_bits)
        # What falls outside [0, size) walks on along its cycle until it comes back in: still a bijection.
        outside = np.flatnonzero(out >= size)
        while outside.size:
            out[outside] = _feistel(out[outside], keys, half_bits)
            outside = outside[out[outside] >= size]
    return out.astype(np.int64)


@dataclass(frozen=True)
class SampleOrder:
    """Which row every global sample is."""

    rows: int
    """Rows of the dataset."""
    seed: int
    """Draws a permutation for each epoch."""
    shuffle: bool = True
    """False: rows in the order in which they lie on disk, in every epoch."""

    def rows_at(self, positions: np.ndarray) -> np.ndarray:
        """Rows of global samples: (n,) int64 positions -> (n,) int64 row numbers."""
        positions = np.asarray(positions, np.int64)
        epochs, within = positions // self.rows, positions % self.rows
        if not self.shuffle:
            return within
        out = np.empty_like(within)
        for epoch in np.unique(epochs):
            chosen = epochs == epoch
            key = (self.seed * 0x2545F4914F6CDD1D + int(epoch) * 0xD1342543DE82EF95) % 2**64
            out[chosen] = permuted(within[chosen], self.rows, key)
        return out


@dataclass(frozen=True)
class RankShare:
    """Which part of every global batch a data-parallel rank reads: a contiguous one, in rank order."""

    global_batch_size: int
    """Samples of one optimizer step."""
    data_parallel: int = 1
    """Ranks that share them equally."""
    data_rank: int = 0
    """This rank."""

    @property
    def local_batch_size(self) -> int:
        """Samples of one optimizer step on this rank."""
        return self.global_batch_size // self.data_parallel

    def positions(self, start: int, steps: int) -> np.ndarray:
        """Global positions of this rank's samples of `steps` steps from position `start`: (steps * local,) int64."""
        first = start + self.data_rank * self.local_batch_size
        per_step = np.arange(steps, dtype=np.int64)[:, None] * self.global_batch_size
        return (first + per_step + np.arange(self.local_batch_size, dtype=np.int64)[None, :]).reshape(-1)
