"""Where each layer is, and which layers are computed again: MindFormers' rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msllm.config.sections import ParallelConfig, RecomputeConfig
from msllm.config.stages import layer_places, layer_shares, recomputed_layers, stage_layer_counts


def strategy(stages: int, chunks: int = 1, offset=0) -> ParallelConfig:
    return ParallelConfig(pipeline_stage=stages, pp_interleave_num=chunks, offset=offset)


@pytest.mark.parametrize(
    ("layers", "parallel", "places"),
    [
        (3, strategy(1), [(0, 0)] * 3),
        (4, strategy(2), [(0, 0), (0, 0), (1, 0), (1, 0)]),
        (4, strategy(2, offset=(1, -1)), [(0, 0), (0, 0), (0, 0), (1, 0)]),
        (5, strategy(2, offset=(0, 1)), [(0, 0), (0, 0), (1, 0), (1, 0), (1, 0)]),
        (4, strategy(2, 2), [(0, 0), (1, 0), (0, 1), (1, 1)]),
        (6, strategy(2, 2, ((0, 1), (1, 0))), [(0, 0), (1, 0), (1, 0), (0, 1), (0, 1), (1, 1)]),
        (8, strategy(2, 2, (1, -1)), [(0, 0)] * 3 + [(1, 0)] + [(0, 1)] * 3 + [(1, 1)]),
    ],
)
def test_layers_run_through_all_stages_chunk_by_chunk(layers, parallel, places):
    assert list(layer_places(layers, parallel)) == places


@given(st.integers(1, 6), st.integers(1, 3), st.data())
def test_every_layer_has_one_place_and_the_counts_agree(stages, chunks, data):
    shares = data.draw(
        st.lists(st.lists(st.integers(1, 5), min_size=stages, max_size=stages), min_size=chunks, max_size=chunks)
    )
    layers = sum(map(sum, shares))
    even = layers // (stages * chunks)
    parallel = strategy(stages, chunks, tuple(tuple(share - even for share in row) for row in shares))
    assert [list(row) for row in layer_shares(layers, parallel)] == shares
    places = layer_places(layers, parallel)
    assert len(places) == layers
    assert [(chunk, stage) for stage, chunk in places] == sorted((chunk, stage) for stage, chunk in places)
    counts = [sum(place[0] == stage for place in places) for stage in range(stages)]
    assert list(stage_layer_counts(layers, parallel)) == counts
    full, _ = recomputed_layers(layers, parallel, RecomputeConfig(recompute=tuple(counts)))
    assert full == set(range(layers))


@pytest.mark.parametrize(
    ("parallel", "recompute", "full", "selective"),
    [
        (strategy(1), {}, set(), set()),
        (strategy(1), {"recompute": True}, set(range(8)), set()),
        (strategy(1), {"recompute": (3,), "select_recompute": True}, {0, 1, 2}, {3, 4, 5, 6, 7}),
        (strategy(2), {"recompute": (3, 1)}, {0, 1, 2, 4}, set()),
        (strategy(2), {"recompute": (1, 0), "select_recompute": (2, 3)}, {0}, {1, 4, 5, 6}),
        # Two chunks: a stage's layers are 0, 1, 4, 5; its counts take the first of each chunk before the second.
        (strategy(2, 2), {"recompute": (1, 2)}, {0, 2, 6}, set()),
        (strategy(2, 2), {"recompute": (3, 0)}, {0, 4, 1}, set()),
        (strategy(2, 2, ((1, 0), (-1, 0))), {"recompute": (3, 0)}, {0, 5, 1}, set()),
    ],
)
def test_counts_take_the_first_layers_of_each_stage(parallel, recompute, full, selective):
    assert recomputed_layers(8, parallel, RecomputeConfig(**recompute)) == (full, selective)
