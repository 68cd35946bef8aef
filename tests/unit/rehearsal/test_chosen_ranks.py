from __future__ import annotations

import pytest

from msllm.errors import InputError
from msllm.parallel.mesh import Mesh
from msllm.rehearsal.chosen_ranks import choose_ranks


@pytest.mark.parametrize(
    ("mesh", "expected"),
    [
        (Mesh(), [0]),
        (Mesh(data=2), [0, 1]),
        (Mesh(data=2, tensor=4), [0, 7]),
        (Mesh(data=2, tensor=2, stages=2), [0, 3, 4, 7]),
        (Mesh(data=32, tensor=8, stages=4), [0, 255, 256, 511, 512, 767, 768, 1023]),
        (Mesh(stages=4), [0, 1, 2, 3]),
    ],
)
def test_auto_takes_the_first_and_last_rank_of_each_stage(mesh: Mesh, expected: list[int]):
    assert choose_ranks("auto", mesh) == expected


def test_all_and_lists_are_taken_as_they_are_given():
    assert choose_ranks("all", Mesh(tensor=4)) == [0, 1, 2, 3]
    assert choose_ranks("3, 0,3", Mesh(tensor=4)) == [0, 3]


@pytest.mark.parametrize("text", ["", "first", "0,", "-1", "1.5", "0-3"])
def test_anything_else_is_refused_with_the_legal_forms(text: str):
    with pytest.raises(InputError, match="must be auto, all, or ranks with commas between"):
        choose_ranks(text, Mesh(tensor=4))


def test_a_rank_that_does_not_exist_is_refused():
    with pytest.raises(InputError, match="rank 4 does not exist; the strategy has ranks 0 to 3"):
        choose_ranks("0,4", Mesh(tensor=4))
