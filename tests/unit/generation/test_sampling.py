"""The choice of the next token, with frequencies where it is a matter of chance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from msllm.generation.sampling import Sampling

LOGITS = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))


def frequencies(sampling: Sampling, draws: int = 4000) -> np.ndarray:
    random = np.random.default_rng(0)
    chosen = [sampling.choose(LOGITS, random) for _ in range(draws)]
    return np.bincount(chosen, minlength=len(LOGITS)) / draws


def test_temperature_0_takes_the_most_likely_token():
    assert Sampling(temperature=0).choose(np.array([0.1, 3.0, 2.9], np.float32), np.random.default_rng(0)) == 1


def test_temperature_1_draws_with_the_models_probabilities():
    assert frequencies(Sampling()) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)


def test_a_low_temperature_sharpens_and_a_high_one_flattens():
    squared = np.array([0.25, 0.09, 0.0225, 0.0025])
    assert frequencies(Sampling(temperature=0.5)) == pytest.approx(squared / squared.sum(), abs=0.03)
    assert frequencies(Sampling(temperature=100.0)) == pytest.approx([0.25] * 4, abs=0.03)


def test_top_k_leaves_out_all_but_the_k_most_likely():
    assert frequencies(Sampling(top_k=2)) == pytest.approx([0.625, 0.375, 0, 0], abs=0.03)
    assert frequencies(Sampling(top_k=1)).tolist() == [1, 0, 0, 0]
    assert frequencies(Sampling(top_k=100)) == pytest.approx([0.5, 0.3, 0.15, 0.05], abs=0.03)


def test_top_p_keeps_the_smallest_set_that_reaches_p():
    assert frequencies(Sampling(top_p=0.5)).tolist() == [1, 0, 0, 0]
    assert frequencies(Sampling(top_p=0.51)) == pytest.approx([0.625, 0.375, 0, 0], abs=0.03)
    assert frequencies(Sampling(top_p=0.9))[3] == 0


@given(
    st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=30),
    st.floats(0, 5),
    st.one_of(st.none(), st.integers(1, 40)),
    st.floats(0.01, 1),
    st.integers(0, 9),
)
def test_whatever_the_logits_the_choice_is_a_token_and_the_same_again(logits, temperature, top_k, top_p, seed):
    array = np.array(logits, np.float32)
    sampling = Sampling(temperature, top_k, top_p)
    chosen = sampling.choose(array, np.random.default_rng(seed))
    assert 0 <= chosen < len(logits)
    assert chosen == sampling.choose(array, np.random.default_rng(seed))


def test_values_out_of_range_are_all_named():
    problems = Sampling(temperature=-1, top_k=0, top_p=1.5).problems()
    assert [text.split()[0] for text in problems] == ["temperature", "top_k", "top_p"]
    assert Sampling().problems() == []
