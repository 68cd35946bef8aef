from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from msllm.data.sampler import RankShare, SampleOrder, permuted

SIZES = [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4096, 4097, 65536, 100_003]


@pytest.mark.parametrize("size", SIZES)
def test_permuted_is_a_bijection_at_sizes_around_powers_of_two(size: int):
    assert np.array_equal(np.sort(permuted(np.arange(size), size, key=7)), np.arange(size))


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
@settings(max_examples=100, deadline=None)
def test_permuted_is_a_bijection_for_any_size_and_key(size: int, key: int):
    assert np.array_equal(np.sort(permuted(np.arange(size), size, key)), np.arange(size))


@given(size=st.integers(1, 2**40), key=st.integers(0, 2**64 - 1), data=st.data())
@settings(max_examples=50, deadline=None)
def test_one_value_is_computed_as_it_is_among_others(size: int, key: int, data: st.DataObject):
    values = np.array(data.draw(st.lists(st.integers(0, size - 1), min_size=1, max_size=20)))
    together = permuted(values, size, key)
    assert ((0 <= together) & (together < size)).all()
    assert together.tolist() == [permuted(values[i : i + 1], size, key)[0] for i in range(len(values))]


def test_permuted_refuses_an_empty_range():
    with pytest.raises(ValueError, match=r"size \(0\) must be at least 1"):
        permuted(np.arange(0), 0, 1)


def test_the_order_of_samples_never_changes_between_versions():
    """Golden values: a change here breaks the resume of every run that exists."""
    assert permuted(np.arange(10), 10, 0).tolist() == [8, 0, 6, 7, 2, 3, 1, 9, 4, 5]
    assert permuted(np.arange(10), 10, 12345).tolist() == [7, 2, 8, 9, 1, 5, 3, 4, 6, 0]
    positions = np.array([0, 1, 2, 3, 999, 1000, 1001, 123456])
    assert SampleOrder(1000, 42).rows_at(positions).tolist() == [225, 422, 124, 845, 637, 128, 610, 692]
    assert SampleOrder(7, 2**32 - 1).rows_at(np.arange(14)).tolist() == [3, 4, 1, 5, 2, 0, 6, 0, 6, 2, 4, 3, 1, 5]
    far = SampleOrder(3_000_000_000, 7).rows_at(np.array([0, 1, 2, 2_999_999_999, 10**12]))
    assert far.tolist() == [1109855727, 2054596809, 1566419634, 2088738031, 2820459014]


@given(rows=st.integers(1, 500), seed=st.integers(0, 2**32 - 1), first_epoch=st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_every_epoch_holds_every_row_once(rows: int, seed: int, first_epoch: int):
    order = SampleOrder(rows, seed)
    read = order.rows_at(np.arange(first_epoch * rows, (first_epoch + 3) * rows)).reshape(3, rows)
    assert (np.sort(read, axis=1) == np.arange(rows)).all()


def test_epochs_and_seeds_have_orders_of_their_own():
    order = SampleOrder(1000, 42)
    first, second = order.rows_at(np.arange(1000)), order.rows_at(np.arange(1000, 2000))
    other = SampleOrder(1000, 43).rows_at(np.arange(1000))
    for one, another in ((first, second), (first, other), (first, np.arange(1000))):
        assert (one == another).sum() < 20  # about one match is what chance gives


def test_shuffled_neighbours_lie_far_apart():
    """Neighbouring rows are of one document; a batch must not be made of them."""
    read = SampleOrder(10_000, 1).rows_at(np.arange(10_000))
    assert np.abs(np.diff(read)).mean() == pytest.approx(10_000 / 3, rel=0.05)


def test_without_shuffle_rows_come_as_they_lie_on_disk():
    assert SampleOrder(5, 42, shuffle=False).rows_at(np.arange(12)).tolist() == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]


@given(
    local=st.integers(1, 8),
    ranks=st.integers(1, 8),
    start=st.integers(0, 10**9),
    steps=st.integers(1, 5),
)
@settings(max_examples=100, deadline=None)
def test_the_shares_of_all_ranks_are_the_global_batches(local: int, ranks: int, start: int, steps: int):
    shares = [RankShare(local * ranks, ranks, rank) for rank in range(ranks)]
    together = np.concatenate([share.positions(start, steps).reshape(steps, local) for share in shares], axis=1)
    assert together.reshape(-1).tolist() == list(range(start, start + steps * local * ranks))


@given(before=st.sampled_from([1, 2, 3, 4, 6, 12]), after=st.sampled_from([1, 2, 3, 4, 6, 12]), stop=st.integers(0, 9))
def test_a_change_of_data_parallel_keeps_the_global_order(before: int, after: int, stop: int):
    order = SampleOrder(37, seed=3)

    def rows_of(ranks: int, start: int, steps: int) -> list[int]:
        """Rows in global order: step by step, rank by rank."""
        parts = [
            order.rows_at(RankShare(12, ranks, rank).positions(start, steps)).reshape(steps, 12 // ranks)
            for rank in range(ranks)
        ]
        return np.concatenate(parts, axis=1).reshape(-1).tolist()

    assert rows_of(before, 0, stop) + rows_of(after, stop * 12, 10 - stop) == rows_of(1, 0, 10)
