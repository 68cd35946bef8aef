"""What measured bandwidths say, on figures that were made up."""

from __future__ import annotations

import json
from collections.abc import Callable
from xml.etree import ElementTree

from msllm.bench.comm_picture import group_lines, matrix, svg
from msllm.bench.comm_plan import ALL_GATHER, ALL_REDUCE, Measurement, plan
from msllm.bench.comm_verdict import Figures, document, near, remarks

MB = 1 << 20


def figures(servers: list[int], rate: Callable[[int, int], float], chip: str | None = None) -> Figures:
    """Every pair with the GB/s that `rate` gives it, and one group."""
    measurements = [m for m in plan(servers, [16 * MB], ascend=False) if m.kind in (ALL_REDUCE, ALL_GATHER)]
    seconds = []
    for measurement in measurements:
        gb = rate(*measurement.ranks) if measurement.group == "pair" else 10.0
        seconds.append(measurement.on_the_wire / (gb * 1e9))
    return Figures(servers, measurements, seconds, chip)


def test_the_rate_of_a_pair_is_what_each_of_the_two_sends():
    measured = Figures([0, 0], [Measurement(ALL_REDUCE, (0, 1), 1000, "pair")], [1e-6])
    assert measured.pairs() == {(0, 1): 1.0}  # 2 x 1000 x (2 - 1) / 2 bytes in a microsecond
    ring = Measurement(ALL_REDUCE, (0, 1, 2, 3), 1000, "all")
    assert ring.on_the_wire == 1500.0
    assert Measurement(ALL_GATHER, (0, 1, 2, 3), 1000, "all").on_the_wire == 750.0


def test_equal_pairs_say_nothing():
    assert remarks(figures([0] * 8, lambda a, b: 20.0)) == []


def test_a_slow_pair_is_named():
    assert remarks(figures([0] * 4, lambda a, b: 5.0 if (a, b) == (1, 3) else 20.0)) == [
        "pair 1-3 is slow: 5 GB/s, 25% of the median of its kind"
    ]


def test_a_slow_rank_is_named_once_and_not_by_each_of_its_pairs():
    found = remarks(figures([0] * 8, lambda a, b: 4.0 if 5 in (a, b) else 20.0))
    assert found[0] == "rank 5 is slow with every rank on its server: 20% of the median at best"
    assert not any("pair" in text for text in found)


def test_ranks_behind_one_switch_are_found():
    measured = figures([0] * 8, lambda a, b: 30.0 if a // 4 == b // 4 else 22.0)
    assert remarks(measured) == ["nearer to each other on server 0, as behind one switch: 0, 1, 2, 3 | 4, 5, 6, 7"]
    assert near([0, 1, 2], {(0, 1): 1.0, (1, 2): 0.9, (0, 2): 0.1}) == [[0, 1, 2]]


def test_pairs_between_servers_are_a_kind_of_their_own():
    servers = [0, 0, 1, 1]
    assert remarks(figures(servers, lambda a, b: 20.0 if servers[a] == servers[b] else 2.0)) == []
    found = remarks(
        figures(servers, lambda a, b: 20.0 if servers[a] == servers[b] else 0.5 if (a, b) == (0, 2) else 2.0)
    )
    assert found == ["pair 0-2 is slow: 0.5 GB/s, 25% of the median of its kind"]


def test_figures_are_compared_with_the_links_of_the_chip():
    servers = [0, 0, 1, 1]
    found = remarks(figures(servers, lambda a, b: 21.0 if servers[a] == servers[b] else 20.0, "910B"))
    assert found == [
        "pairs inside a server: median 21 GB/s, 75% of HCCS's 28 GB/s",
        "pairs between servers: median 20 GB/s, 80% of RoCE's 25 GB/s",
    ]


def test_the_matrix_shows_every_pair_both_ways():
    lines = matrix(figures([0] * 3, lambda a, b: 10.0 * a + b))
    assert [line.split() for line in lines] == [
        ["rank", "0", "1", "2"],
        ["0", "-", "1", "2"],
        ["1", "1", "-", "12"],
        ["2", "2", "12", "-"],
    ]


def test_groups_have_a_line_for_each_collective():
    assert [line.split() for line in group_lines(figures([0, 0], lambda a, b: 1.0))] == [
        ["group", "collective", "16", "MB"],
        ["all", "AllReduce", "10"],
        ["all", "AllGather", "10"],
    ]


def test_the_picture_is_well_formed_and_frames_servers():
    picture = ElementTree.fromstring(svg(figures([0, 0, 1, 1], lambda a, b: 5.0 if (a, b) == (0, 1) else 20.0, "910B")))
    rectangles = [element for element in picture.iter() if element.tag.endswith("rect")]
    assert len([element for element in rectangles if element.get("stroke") == "black"]) == 2
    assert len(rectangles) == 1 + 16 + 2


def test_the_document_is_json_with_every_figure():
    made = json.loads(json.dumps(document(figures([0, 0], lambda a, b: 2.0, "910C"))))
    assert made["nominal"]["inside"] == {"link": "HCCS", "gb_per_second": 196.0}
    assert made["measurements"][0]["ranks"] == [0, 1]
    assert round(made["measurements"][0]["gb_per_second"], 6) == 2.0
