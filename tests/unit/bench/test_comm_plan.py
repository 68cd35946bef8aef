"""Which collectives are measured."""

from __future__ import annotations

from msllm.bench.comm_plan import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, SEND, groups, pairs, plan


def kinds(servers: list[int], ascend: bool) -> set[tuple[str, str]]:
    return {(m.kind, m.group) for m in plan(servers, [1 << 20], ascend)}


def test_cpu_measures_what_its_backend_has():
    assert kinds([0, 0, 0], ascend=False) == {(ALL_REDUCE, "pair"), (ALL_REDUCE, "all"), (ALL_GATHER, "all")}


def test_ascend_measures_all_kinds_in_all_groups():
    found = kinds([0, 0, 1, 1], ascend=True)
    for group in ("all", "server 0", "server 1", "place 0 of each server", "place 1 of each server"):
        assert {(ALL_REDUCE, group), (ALL_GATHER, group), (REDUCE_SCATTER, group)} <= found
    assert (SEND, "pair") in found


def test_groups_are_those_of_servers_and_across_them():
    assert groups([0, 0, 1, 1], [(0, 3)]) == {
        "all": (0, 1, 2, 3),
        "server 0": (0, 1),
        "server 1": (2, 3),
        "place 0 of each server": (0, 2),
        "place 1 of each server": (1, 3),
        "0,3": (0, 3),
    }
    assert list(groups([0, 1])) == ["all", "place 0 of each server"]


def test_few_ranks_are_paired_with_all_and_many_at_growing_distances():
    assert pairs(4) == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    many = pairs(64)
    assert len(many) == 6 * 64 - 32  # distance 32 meets each pair twice
    assert all(0 <= a < b < 64 for a, b in many)
    assert {rank for pair in many for rank in pair} == set(range(64))
