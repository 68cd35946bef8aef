"""The slice of each weight that a device holds, as the strategies ask for it.

MindSpore decides it again while it compiles; `slice_problems` compares the two, since the global norm is weighted by ours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from msllm.config.sections import ParallelConfig
from msllm.parallel.mesh import Mesh


@dataclass(frozen=True)
class WeightSlice:
    """What one device holds of a weight."""

    shape: tuple[int, ...]
    """Of the slice."""
    replicas: int
    """Ranks of the stage that hold the same slice."""


def weight_slice(weight: Any, mesh: Mesh, parallel: ParallelConfig) -> WeightSlice:
    """The slice of a Parameter whose `cut` its layer has noted, of full shape.

    With optimizer parallel MindSpore cuts the first axis once more, over all ranks of a stage that hold the same slice, if the
    axis can be divided so and the weight reaches the threshold (C++: OptParamMgrImpl::SplitParam and
    TensorLayout::GenerateOptShardSliceShape).
    """
    cut = getattr(weight, "cut", (1,) * len(weight.shape))
    shape = tuple(length // parts for length, parts in zip(weight.shape, cut))
    same = mesh.data * mesh.tensor // math.prod(cut)
    kilobytes = math.prod(weight.shape) * weight.dtype.itemsize / 1024
    large = kilobytes >= parallel.parallel_optimizer_config.parallel_optimizer_threshold
    if mesh.optimizer_parallel and same > 1 and large and shape[0] % same == 0:
        return WeightSlice((shape[0] // same, *shape[1:]), 1)
    return WeightSlice(shape, same)


def slice_problems(
    weights: Sequence[Any], expected: Sequence[WeightSlice], layouts: Mapping[str, Sequence]
) -> list[str]:
    """How the weights of a compiled cell, whose shapes are those of the slices, differ from what was expected.

    `layouts` is the cell's `parameter_layout_dict`; weights of other pipeline stages are not in it and stay whole.
    """
    return [
        f"{weight.name}: MindSpore gave a device {tuple(weight.shape)}, expected {wanted.shape}"
        for weight, wanted in zip(weights, expected)
        if weight.name in layouts and tuple(weight.shape) != wanted.shape
    ]
