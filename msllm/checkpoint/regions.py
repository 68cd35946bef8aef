"""Tensors of a state on disk, each in one or several parts, and any region of them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors import safe_open

Region = tuple[slice, ...]
"""A box in a tensor: start and stop for every axis."""


@dataclass(frozen=True)
class Part:
    """What one file has of a tensor."""

    file: str
    begin: tuple[int, ...]
    shape: tuple[int, ...]

    @property
    def region(self) -> Region:
        """Where it lies in the tensor."""
        return tuple(slice(start, start + length) for start, length in zip(self.begin, self.shape))


@dataclass(frozen=True)
class StoredTensor:
    """A tensor of a state."""

    name: str
    group: str
    """model or optimizer."""
    dtype: str
    shape: tuple[int, ...]
    parts: tuple[Part, ...]


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """By name, all tensors of the state in `path`, whose manifest was checked."""
    manifest = json.loads((path / "manifest.json").read_text())
    parts = manifest.get("parts", {})
    found = {}
    for group, tensors in manifest["tensors"].items():
        for name, (dtype, shape) in tensors.items():
            rows = parts.get(name, [[f"{group}.safetensors", [0] * len(shape), shape]])
            in_files = tuple(Part(file, tuple(begin), tuple(lengths)) for file, begin, lengths in rows)
            found[name] = StoredTensor(name, group, dtype, tuple(shape), in_files)
    return found


def read_region(path: Path, tensor: StoredTensor, region: Region) -> np.ndarray:
    """The values of a region, read from no more of the files than that."""
    result = np.empty([axis.stop - axis.start for axis in region], tensor.dtype)
    for part in tensor.parts:
        common = _common(part.region, region)
        if common is None:
            continue
        within = tuple(slice(a.start - b, a.stop - b) for a, b in zip(common, part.begin))
        target = tuple(slice(a.start - b.start, a.stop - b.start) for a, b in zip(common, region))
        with safe_open(str(path / part.file), framework="numpy") as file:
            # A scalar has no axis to be sliced along.
            result[target] = file.get_slice(tensor.name)[within] if within else file.get_tensor(tensor.name)
    return result


def uncovered(tensor: StoredTensor) -> int:
    """Elements of a tensor that no part has; parts of one another's places count as often as they are there."""
    return int(np.prod(tensor.shape)) - sum(int(np.prod(part.shape)) for part in tensor.parts)


def _common(one: Sequence[slice], other: Sequence[slice]) -> Region | None:
    """The box that two boxes share, None where they share nothing."""
    both = tuple(slice(max(a.start, b.start), min(a.stop, b.stop)) for a, b in zip(one, other))
    return None if any(axis.start >= axis.stop for axis in both) else both
