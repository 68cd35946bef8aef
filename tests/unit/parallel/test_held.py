"""The slices of all ranks of a stage tile a tensor, each element as often as the layout says."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msllm.errors import RunError
from msllm.parallel.held import ACCUMULATED, Held, held_by_rank, slice_of


def parameter(shape, held, layout) -> dict:
    return {"name": "weight", "shape": shape, "slice": held, "layout": layout}


@st.composite
def layouts(draw) -> tuple[dict, int, int]:
    """(parameter, ranks of a stage, ranks that hold the same element) of a random layout."""
    matrix = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    free = list(range(len(matrix)))
    tensor_map, parts = [], []
    for _ in range(draw(st.integers(1, 3))):
        axis = draw(st.sampled_from([None, *free]))
        if axis is not None:
            free.remove(axis)
        tensor_map.append(-1 if axis is None else len(matrix) - 1 - axis)
        parts.append(1 if axis is None else matrix[axis])
    held = [draw(st.integers(1, 3)) for _ in parts]
    same, group = math.prod(matrix) // math.prod(parts), ""
    shape = [part * length for part, length in zip(parts, held)]
    if draw(st.booleans()):
        group = "the ranks of one slice"
        shape[0] *= same
        same = 1
    return parameter(shape, held, [matrix, tensor_map, [], 0, True, group]), math.prod(matrix), same


@given(layouts(), st.integers(1, 3))
def test_slices_tile_the_tensor_with_the_replication_of_the_layout(layout, stage):
    entry, ranks, same = layout
    count = np.zeros(entry["shape"], int)
    for rank in range(stage * ranks, (stage + 1) * ranks):
        place = slice_of(entry, rank)
        assert count[place].shape == tuple(entry["slice"])
        count[place] += 1
    assert (count == same).all()


@given(layouts(), st.integers(0, 3))
def test_every_element_of_a_stage_is_written_by_one_rank(layout, stage):
    entry, ranks, _ = layout
    weight = SimpleNamespace(name=entry["name"], shape=entry["slice"])
    written = np.zeros(entry["shape"], int)
    for rank in range(stage * ranks, (stage + 1) * ranks):
        [held] = held_by_rank([weight], {weight.name: tuple(entry["shape"])}, {weight.name: entry["layout"]}, rank)
        assert held.place == slice_of(entry, rank)
        written[held.place] += held.writes
    assert (written == 1).all()


def test_a_scalar_of_all_ranks_is_written_by_the_first_and_a_tensor_of_another_stage_is_not_held():
    step, other = SimpleNamespace(name="step", shape=()), SimpleNamespace(name="other", shape=(8, 4))
    sums = SimpleNamespace(name=f"{ACCUMULATED}weight", shape=(2,))
    shapes = {"step": (), "other": (8, 4), sums.name: (4,)}
    layouts = {sums.name: [[2], [0], [2], 0, True, ""]}
    for rank in range(3):
        assert held_by_rank([step, other, sums], shapes, layouts, rank) == [Held("step", (), (), rank == 0)]


def test_the_last_axis_of_the_device_matrix_is_the_innermost_of_ranks():
    layout = [[2, 2], [0, -1], [4, 4], 0, True, ""]
    entry = parameter([8, 4], [4, 4], layout)
    assert [slice_of(entry, rank)[0].start for rank in range(4)] == [0, 4, 0, 4]


def test_the_optimizer_parallel_cuts_the_first_axis_among_the_holders_of_a_slice():
    rows = parameter([8, 4], [2, 4], [[2, 2], [0, -1], [4, 4], 0, True, "group"])
    assert [slice_of(rows, rank)[0].start for rank in range(4)] == [0, 4, 2, 6]
    columns = parameter([8, 4], [4, 2], [[2, 2], [-1, 0], [8, 2], 0, True, "group"])
    starts = [tuple(part.start for part in slice_of(columns, rank)) for rank in range(4)]
    assert starts == [(0, 0), (0, 2), (4, 0), (4, 2)]


def test_a_parameter_without_layout_is_whole_everywhere():
    assert slice_of(parameter([], [], None), 5) == ()
    assert slice_of(parameter([3], [3], None), 1) == (slice(0, 3),)


def test_shapes_that_do_not_fit_the_layout_are_refused():
    with pytest.raises(RunError, match="weight: shape"):
        slice_of(parameter([8, 4], [8, 4], [[2], [0, -1], [4, 4], 0, True, ""]), 0)
