"""Which part of each full tensor a rank holds, from the layout that MindSpore notes for each parameter."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msllm.errors import RunError

UNCUT = -1
ACCUMULATED = "accu_grads."
"""Parameters of this prefix are sums that a step of several micro batches keeps within itself, zero between steps."""


@dataclass(frozen=True)
class Held:
    """What a rank holds of a tensor."""

    name: str
    shape: tuple[int, ...]
    """Of the full tensor."""
    place: tuple[slice, ...]
    """Where the part lies in it."""
    writes: bool
    """Whether the rank is the first of those that hold this very part."""


def whole(parameters: Iterable[Any]) -> list[Held]:
    """Of MindSpore parameters that this rank holds as a whole, and writes."""
    return [
        Held(p.name, tuple(p.shape), tuple(slice(0, length) for length in p.shape), writes=True) for p in parameters
    ]


def compiled_layouts(cell: Any) -> dict[str, list[Any]]:
    """Parameter name -> layout of a cell that was compiled for MindSpore's parallel mode.

    Where a data sink has compiled the function that it makes around the cell, the cell does not know, but MindSpore does.
    """
    from mindspore.graph.api import _get_parameter_layout

    return cell.parameter_layout_dict or _get_parameter_layout()


def held_by_rank(
    parameters: Iterable[Any], full_shapes: Mapping[str, tuple[int, ...]], layouts: Mapping[str, Any], rank: int
) -> list[Held]:
    """Of MindSpore parameters after compilation, which gives them the shapes of their slices.

    Args:
        parameters: of the step; those without a layout belong to other pipeline stages, or are scalars that all ranks hold.
        full_shapes: by name, noted before compilation.
        layouts: `compiled_layouts` of the step.
        rank: of this process.

    Raises:
        RunError: a layout and the shapes do not fit together.
    """
    found = []
    for parameter in parameters:
        name, layout = parameter.name, layouts.get(parameter.name)
        if name.startswith(ACCUMULATED) or (layout is None and math.prod(full_shapes[name]) > 1):
            continue
        shape = full_shapes[name]
        entry = {"name": name, "shape": shape, "slice": tuple(parameter.shape), "layout": layout}
        found.append(Held(name, shape, slice_of(entry, rank), writes=_is_first(entry, rank)))
    return found


def slice_of(parameter: Mapping[str, Any], rank: int) -> tuple[slice, ...]:
    """The slice of a parameter that a rank holds: an index for its full array.

    `parameter` has name, shape, slice (its shape) and layout, an entry of MindSpore's `parameter_layout_dict` or None for what
    every rank holds whole. Of the layout these say where a slice lies:

    [0] device matrix: the ranks of a pipeline stage as an array in row-major order, the whole array times the stages being
        all ranks;
    [1] tensor map: for each axis of the tensor the axis of the device matrix that cuts it, counted from the last one, or -1;
    [5] group of the optimizer parallel: where it is not empty, the ranks of the stage with the same slice, in their order,
        hold a part of its first axis each.

    Raises:
        RunError: the layout and the shapes of the tensor and its slice do not fit together.
    """
    shape, held, layout = tuple(parameter["shape"]), tuple(parameter["slice"]), parameter["layout"]
    matrix, tensor_map, optimizer_group = _read(layout, len(shape))
    place = rank % math.prod(matrix)
    coordinates = np.unravel_index(place, matrix)
    axes = _axes(matrix, tensor_map)
    parts = [1 if axis is None else int(matrix[axis]) for axis in axes]
    index = [0 if axis is None else int(coordinates[axis]) for axis in axes]
    if optimizer_group and shape:
        shards = _optimizer_shards(matrix, parts, shape, held)
        index[0] = index[0] * shards + _place_among_same(place, matrix, axes) % shards
        parts[0] *= shards
    if len(parts) != len(shape) or tuple(length // count for length, count in zip(shape, parts)) != held:
        raise RunError(f"{parameter['name']}: shape {shape} cut by layout {layout} gives no slice of shape {held}")
    return tuple(slice(number * length, (number + 1) * length) for number, length in zip(index, held))


def _is_first(parameter: Mapping[str, Any], rank: int) -> bool:
    """Whether no rank before this one holds the same slice; of what has no layout, whether this is rank 0."""
    if parameter["layout"] is None:
        return rank == 0
    shape = parameter["shape"]
    matrix, tensor_map, optimizer_group = _read(parameter["layout"], len(shape))
    axes = _axes(matrix, tensor_map)
    parts = [1 if axis is None else int(matrix[axis]) for axis in axes]
    shards = _optimizer_shards(matrix, parts, shape, parameter["slice"]) if optimizer_group and shape else 1
    return _place_among_same(rank % math.prod(matrix), matrix, axes) < shards


def _read(layout: Any, axes: int) -> tuple[Sequence[int], Sequence[int], str]:
    """Device matrix, tensor map and group of the optimizer parallel."""
    return ([1], [UNCUT] * axes, "") if layout is None else (layout[0], layout[1], layout[5])


def _axes(matrix: Sequence[int], tensor_map: Sequence[int]) -> list[int | None]:
    """For each axis of the tensor, the axis of the device matrix that cuts it."""
    return [len(matrix) - 1 - cut if cut != UNCUT else None for cut in tensor_map]


def _optimizer_shards(matrix: Sequence[int], parts: Sequence[int], shape: Sequence[int], held: Sequence[int]) -> int:
    """Parts of the first axis of a slice that the optimizer parallel makes."""
    same = math.prod(matrix) // math.prod(parts)
    return min(max(shape[0] // parts[0] // held[0], 1), same)


def _place_among_same(place: int, matrix: Sequence[int], axes: Sequence[int | None]) -> int:
    """The place of a rank of a stage among those that hold the same slice: its coordinates on the axes that cut nothing."""
    free = [axis for axis in range(len(matrix)) if axis not in axes]
    coordinates = np.unravel_index(place, matrix)
    number = 0
    for axis in free:
        number = number * int(matrix[axis]) + int(coordinates[axis])
    return number
