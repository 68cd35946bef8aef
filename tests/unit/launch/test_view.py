"""A glance at the ranks of a job."""

from __future__ import annotations

from typing import Any

from msllm.launch.view import view
from msllm.parallel import progress


def record(phase: str, step: int, idle: float = 0.0, own: float = 0.1, **more: Any) -> dict[str, Any]:
    return {
        "phase": phase,
        "step": step,
        "idle": idle,
        "own_seconds": own,
        "step_seconds": 1.0,
        "train_steps": 100,
        **more,
    }


def test_ranks_that_have_told_nothing_are_starting():
    seen = view({}, 8)
    assert seen.text == "8 ranks starting"
    assert (seen.slowest, seen.silent) == (None, ())


def test_the_slowest_rank_is_the_one_that_the_others_wait_for():
    ranks = {
        rank: record(progress.STEP, 12, own=0.8 if rank == 2 else 0.1, tokens_per_second=1234.0) for rank in range(4)
    }
    seen = view(ranks, 4)
    assert seen.slowest == 2
    assert seen.text == (
        "4 ranks, in the step, step 12/100, 1,234 tokens/s; slowest rank 2: 0.80 of 1.00 s a step outside the graph"
    )


def test_the_silent_rank_is_the_one_behind_the_others():
    ranks = {rank: record(progress.STEP, 12, idle=45.0) for rank in range(4)}
    ranks[3] = record(progress.BATCH, 12, idle=45.0)
    seen = view(ranks, 4)
    assert seen.silent == (3,)
    assert seen.text.endswith("silent for 45 s: rank 3, waiting for the batch of step 12 while ranks 0, 1, 2 wait")


def test_p18_ranks_that_wait_for_the_main_one_to_save_are_not_blamed():
    ranks = {rank: record(progress.STEP, 101, idle=90.0) for rank in range(1, 16)}
    ranks[0] = record(progress.SAVING, 100, idle=95.0)
    seen = view(ranks, 16)
    assert seen.silent == (0,)
    assert (
        "silent for 95 s: rank 0, saving a checkpoint of step 100 while ranks 1, 2, 3, 4, 5, 6, 7, 8 and 7 more wait"
        in seen.text
    )


def test_all_are_silent_where_none_is_behind():
    seen = view({rank: record(progress.STEP, 12, idle=45.0) for rank in range(2)}, 2)
    assert seen.silent == (0, 1)
    assert seen.text.endswith("silent for 45 s: ranks 0, 1, in the step of step 12")


def test_long_steps_and_compilation_are_no_silence():
    slow = {"step_seconds": 60.0}
    assert view({0: {**record(progress.STEP, 3, idle=45.0), **slow}}, 1).silent == ()
    assert view({0: {"phase": progress.COMPILING, "step": 1, "idle": 200.0}}, 1).silent == ()
    assert view({0: {"phase": progress.COMPILING, "step": 1, "idle": 2000.0}}, 1).silent == (0,)


def test_a_phase_of_a_later_version_is_shown_as_it_is():
    assert "dreaming" in view({0: {"phase": "dreaming", "idle": 0.0}}, 1).text
