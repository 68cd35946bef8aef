from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msllm.config.sections import LrScheduleConfig
from msllm.optim.schedule import learning_rates

PEAK = 3e-4


def rates(train_steps: int, **fields) -> np.ndarray:
    return learning_rates(LrScheduleConfig(**fields), PEAK, train_steps)


@pytest.mark.parametrize("kind", ["cosine", "linear", "constant", "wsd"])
def test_the_warmup_is_linear_and_ends_at_the_peak(kind: str):
    warmup = rates(100, type=kind, warmup_steps=10)[:10]
    assert warmup == pytest.approx(PEAK * np.arange(1, 11) / 10)


@pytest.mark.parametrize("kind", ["cosine", "linear", "wsd"])
def test_the_last_step_has_the_end_rate(kind: str):
    assert rates(100, type=kind, warmup_steps=10, lr_end=3e-5)[-1] == pytest.approx(3e-5)


def test_cosine_is_half_way_down_in_the_middle_of_its_fall():
    middle = rates(110, type="cosine", warmup_steps=10, lr_end=1e-4)[10 + 50 - 1]
    assert middle == pytest.approx((PEAK + 1e-4) / 2)


def test_linear_falls_by_the_same_amount_each_step():
    falls = np.diff(rates(110, type="linear", warmup_steps=10).astype(np.float64)[9:])
    assert falls == pytest.approx(np.full(100, -PEAK / 100), rel=1e-3)


def test_constant_stays_at_the_peak():
    assert set(rates(50, type="constant", warmup_steps=5)[4:]) == {np.float32(PEAK)}


def test_wsd_stays_at_the_peak_and_falls_linearly_in_its_last_steps():
    curve = rates(100, type="wsd", warmup_steps=10, decay_steps=20, lr_end=0.0)
    assert set(curve[9:80]) == {np.float32(PEAK)}
    assert curve[80:] == pytest.approx(PEAK * (1 - np.arange(1, 21) / 20), abs=1e-10)


def test_wsd_falls_in_the_last_tenth_unless_told_otherwise():
    curve = rates(200, type="wsd")
    assert curve[179] == np.float32(PEAK) > curve[180] > curve[199] == 0


def test_wsd_falls_from_the_peak_even_where_the_warmup_reaches_into_the_last_tenth():
    curve = rates(100, type="wsd", warmup_steps=95)
    assert curve[94:] == pytest.approx(PEAK * (1 - np.arange(0, 6) / 5), abs=1e-10)


def test_a_shape_that_ends_before_the_run_keeps_its_end_rate():
    curve = rates(120, type="cosine", total_steps=100, lr_end=1e-5)
    assert curve[99:] == pytest.approx(np.full(21, 1e-5))


def test_a_run_cut_short_walks_the_first_part_of_the_whole_curve():
    """total_steps holds the shape, so that a run can be trained in parts."""
    whole = rates(100, type="cosine", warmup_steps=10)
    assert np.array_equal(rates(40, type="cosine", warmup_steps=10, total_steps=100), whole[:40])


@given(
    kind=st.sampled_from(["cosine", "linear", "constant", "wsd"]),
    train_steps=st.integers(2, 300),
    warmup=st.integers(0, 299),
    end=st.floats(0, PEAK),
    decay=st.one_of(st.none(), st.integers(1, 300)),
)
@settings(max_examples=300, deadline=None)
def test_every_curve_climbs_then_never_rises_and_stays_within_its_bounds(kind, train_steps, warmup, end, decay):
    warmup = min(warmup, train_steps - 1)
    if decay is not None:
        decay = None if kind != "wsd" else max(1, min(decay, train_steps - warmup))
    curve = rates(train_steps, type=kind, warmup_steps=warmup, lr_end=end, decay_steps=decay)
    assert curve.shape == (train_steps,) and curve.dtype == np.float32
    assert (np.diff(curve[:warmup]) > 0).all()
    assert (np.diff(curve[max(warmup - 1, 0) :]) <= 0).all()
    assert (curve > 0)[: train_steps - 1].all() and (curve <= np.float32(PEAK)).all()
    assert warmup == 0 or curve[warmup - 1] == np.float32(PEAK)
    after = curve[warmup:] if kind != "constant" else curve[:0]
    assert (after >= np.float32(end) * (1 - 1e-6)).all()
