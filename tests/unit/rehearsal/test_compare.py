"""What a comparison finds: each wrong slice, missing and surplus tensor by name, and nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from msllm.rehearsal.compare import compare, relative_error

LAYOUT = [[2], [0, -1], [2, 3], 0, True, ""]
LEARNING_RATE = 1e-2


def tensors(step: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(step)
    return {
        "loss": np.float32(4.0 - step),
        "lr": np.float32(LEARNING_RATE),
        "finite": np.bool_(True),
        "a": random.normal(size=(4, 3)).astype(np.float32),
        "adam_m.a": random.normal(size=(4, 3)).astype(np.float32),
        "b": random.normal(size=3).astype(np.float32),
        "adam_m.b": random.normal(size=3).astype(np.float32),
    }


@pytest.fixture
def expected() -> dict[str, np.ndarray]:
    return {f"{step}/{name}": np.asarray(value) for step in (1, 2) for name, value in tensors(step).items()}


@pytest.fixture
def held() -> list[list[dict]]:
    cut = [{"name": name, "shape": [4, 3], "slice": [2, 3], "layout": LAYOUT} for name in ("a", "adam_m.a")]
    whole = [{"name": name, "shape": [3], "slice": [3], "layout": None} for name in ("b", "adam_m.b")]
    return [[*cut, *whole], [*cut, *whole]]


@pytest.fixture
def answers(expected) -> list[dict[str, np.ndarray]]:
    """Two ranks, each with its rows of `a`."""
    ranks = []
    for rank in range(2):
        mine = {k: v[2 * rank : 2 * rank + 2].copy() if v.ndim == 2 else v.copy() for k, v in expected.items()}
        ranks.append({**mine, "1/local_loss": np.float32(rank), "2/accu_grads.a": np.zeros((2, 3), np.float32)})
    return ranks


def test_equal_answers_pass(expected, answers, held):
    verdict = compare(expected, answers, held)
    assert verdict.passed
    assert verdict.compared == 2 * 2 * 7
    assert verdict.worst.error == 0


def test_rounding_passes_and_the_worst_tensor_is_named(expected, answers, held):
    answers[1]["2/adam_m.b"] *= np.float32(1 + 1e-5)
    verdict = compare(expected, answers, held)
    assert verdict.passed
    assert (verdict.worst.name, verdict.worst.rank, verdict.worst.step) == ("adam_m.b", 1, 2)
    assert "adam_m.b on rank 1 after step 2: relative error 1.0e-05" in str(verdict.worst)


def test_the_slice_of_another_rank_is_wrong(expected, answers, held):
    answers[0]["1/adam_m.a"] = answers[1]["1/adam_m.a"]
    verdict = compare(expected, answers, held)
    assert [(d.name, d.rank, d.step) for d in verdict.beyond] == [("adam_m.a", 0, 1)]


def test_a_wrong_weight_update_is_found_although_updates_get_a_slack(expected, answers, held):
    # Only the element of the largest moment: its update is known to `tolerance` of the learning rate.
    largest = np.argmax(np.abs(expected["1/adam_m.b"]))
    answers[0]["1/b"][largest] += LEARNING_RATE / 10
    assert [d.name for d in compare(expected, answers, held).beyond] == ["b"]


def test_an_update_by_a_gradient_that_is_rounding_is_not_held_against_a_rank(expected, answers, held):
    for side in (expected, *answers):
        side["1/adam_m.b"] = np.full(3, 1e-9, np.float32)
    answers[0]["1/adam_m.b"] = -answers[0]["1/adam_m.b"]
    answers[0]["1/b"] += LEARNING_RATE
    assert compare(expected, answers, held).passed
    answers[0]["1/b"] += 2 * LEARNING_RATE
    assert not compare(expected, answers, held).passed


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_on_one_side_is_wrong(expected, answers, held, value):
    answers[1]["1/loss"] = np.float32(value)
    assert compare(expected, answers, held).worst.error == np.inf
    expected["1/loss"] = answers[0]["1/loss"] = answers[1]["1/loss"]
    assert compare(expected, answers, held).passed


def test_missing_and_surplus_tensors_are_named(expected, answers, held):
    del answers[0]["2/b"]
    answers[1]["2/c"] = np.zeros(1)
    del answers[1]["1/loss"]
    verdict = compare(expected, answers, held)
    assert not verdict.passed
    assert verdict.missing == ("b on rank 0 after step 2", "loss on rank 1 after step 1")
    assert verdict.surplus == ("c on rank 1 after step 2",)


def test_a_tensor_that_no_rank_holds_and_a_rank_without_answers_are_missing(expected, answers, held):
    without = [[q for q in parameters if q["name"] != "b"] for parameters in held]
    assert "b on every rank" in compare(expected, answers, without).missing
    assert "all of rank 1" in compare(expected, answers[:1], held).missing


def test_nothing_to_compare_is_no_success():
    assert not compare({}, [], []).passed


def test_scalars_may_come_as_one_element_and_other_shapes_may_not():
    assert relative_error(np.float32(2), np.array([2], np.float32), 2.0) == 0
    assert relative_error(np.zeros((2, 3)), np.zeros((3, 2)), 1.0) == np.inf
