"""Which part of a full tensor a rank holds, from the layout that MindSpore notes for each parameter."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from msllm.errors import RunError

UNCUT = -1


def slice_of(parameter: Mapping[str, Any], rank: int) -> tuple[slice, ...]:
    """The slice of a parameter that a rank holds: an index for its full array.

    `parameter` is an entry of the worker's result: shape, slice (its shape) and layout, an entry of the cell's
    `parameter_layout_dict` or null for what every rank holds whole. Of the layout these say where a slice lies:

    [0] device matrix: the ranks of a pipeline stage as an array in row-major order, the whole array times the stages being
        all ranks;
    [1] tensor map: for each axis of the tensor the axis of the device matrix that cuts it, counted from the last one, or -1;
    [5] group of the optimizer parallel: where it is not empty, the ranks of the stage with the same slice, in their order,
        hold a part of its first axis each.

    Raises:
        RunError: the layout and the shapes of the tensor and its slice do not fit together.
    """
    shape, held, layout = tuple(parameter["shape"]), tuple(parameter["slice"]), parameter["layout"]
    if layout is None:
        matrix, tensor_map, optimizer_group = [1], [UNCUT] * len(shape), ""
    else:
        matrix, tensor_map, optimizer_group = layout[0], layout[1], layout[5]
    place = rank % math.prod(matrix)
    coordinates = np.unravel_index(place, matrix)
    axes = [len(matrix) - 1 - cut if cut != UNCUT else None for cut in tensor_map]
    parts = [1 if axis is None else int(matrix[axis]) for axis in axes]
    index = [0 if axis is None else int(coordinates[axis]) for axis in axes]
    if optimizer_group and shape:
        same = math.prod(matrix) // math.prod(parts)
        shards = min(max(shape[0] // parts[0] // held[0], 1), same)
        index[0] = index[0] * shards + _place_among_same(place, matrix, axes) % shards
        parts[0] *= shards
    if len(parts) != len(shape) or tuple(length // count for length, count in zip(shape, parts)) != held:
        raise RunError(f"{parameter['name']}: shape {shape} cut by layout {layout} gives no slice of shape {held}")
    return tuple(slice(number * length, (number + 1) * length) for number, length in zip(index, held))


def _place_among_same(place: int, matrix: Sequence[int], axes: Sequence[int | None]) -> int:
    """The place of a rank of a stage among those that hold the same slice: its coordinates on the axes that cut nothing."""
    free = [axis for axis in range(len(matrix)) if axis not in axes]
    coordinates = np.unravel_index(place, matrix)
    number = 0
    for axis in free:
        number = number * int(matrix[axis]) + int(coordinates[axis])
    return number
