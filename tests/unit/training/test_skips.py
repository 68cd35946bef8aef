from __future__ import annotations

import pytest

from msllm.training.skips import SkippedSteps


def test_steps_in_a_row_are_counted_one_by_one_and_forgotten_after_an_update():
    skips = SkippedSteps(steps=1)
    assert [skips.look(1, finite=False), skips.look(2, finite=False)] == [1, 1]
    assert (skips.in_a_row, skips.updated(7)) == (2, 5)
    assert skips.look(2, finite=True) == 0
    assert (skips.in_a_row, skips.updated(8)) == (0, 8)


@pytest.mark.parametrize(
    "looks, in_a_row, updated",
    [
        ([(1, True)], 0, 12),
        ([(4, False)], 4, 8),
        ([(4, False), (8, False)], 8, 4),
        ([(3, False)], 1, 8),  # whether the one before the last was among them is not known
        ([(4, False), (6, False)], 1, 8),  # an update came between
    ],
)
def test_a_look_at_four_steps_claims_no_more_than_it_saw(looks, in_a_row, updated):
    skips = SkippedSteps(steps=4)
    for total, finite in looks:
        skips.look(total, finite)
    assert (skips.in_a_row, skips.updated(12)) == (in_a_row, updated)


def test_a_resumed_run_goes_on_counting():
    skips = SkippedSteps(steps=1, total=5, in_a_row=2)
    assert skips.look(6, finite=False) == 1
    assert skips.in_a_row == 3
