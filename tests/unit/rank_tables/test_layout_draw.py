"""Where a strategy's ranks stand, whether tensor parallel leaves a server, and the pictures of it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_table_samples import EXAMPLES, make_table

from msllm.errors import InputError
from rank_tables import draw
from rank_tables.check import read_table
from rank_tables.layout import Coordinate, Strategy, crossings, propose_order, require_fit
from rank_tables.table import Device, RankTable, Server

SVG = "{http://www.w3.org/2000/svg}"


def strategy(data: int, tensor: int, stages: int) -> Strategy:
    """Tensor parallel innermost, stages outermost."""
    places = [Coordinate(s, d, t) for s in range(stages) for d in range(data) for t in range(tensor)]
    return Strategy(data, tensor, stages, tuple(places))


def interleaved(servers: int, devices: int) -> RankTable:
    """Rank r on server r % servers: what a hand-written table can look like."""
    return RankTable(
        "1.0",
        tuple(
            Server(f"10.0.0.{s + 1}", tuple(Device(d, f"192.168.{s}.{d + 1}", d * servers + s) for d in range(devices)))
            for s in range(servers)
        ),
    )


def test_a_group_inside_a_server_does_not_cross():
    assert crossings(make_table("10.0.0.1", "10.0.0.2"), strategy(2, 8, 1)) == []
    assert crossings(make_table("10.0.0.1", "10.0.0.2"), strategy(16, 1, 1)) == []


def test_a_group_over_servers_is_named_with_ranks_and_servers():
    (found,) = crossings(make_table("10.0.0.1", "10.0.0.2"), strategy(1, 16, 1))
    assert str(found) == (
        "tensor-parallel group of ranks 0 to 15 spans 2 servers (10.0.0.1, 10.0.0.2), over the network between servers"
    )


def test_inside_a_super_pod_the_link_is_another_one():
    (found,) = crossings(read_table(EXAMPLES / "a3_2x16.json"), strategy(1, 32, 1))
    assert str(found).endswith("inside super pod 0")


def test_a_strategy_of_another_size_is_refused_p15():
    with pytest.raises(InputError) as caught:
        require_fit(make_table("10.0.0.1"), strategy(2, 4, 2))
    assert str(caught.value) == (
        "the strategy needs 16 devices (data_parallel 2 x model_parallel 4 x pipeline_stage 2), but the rank table has 8"
    )


def test_an_order_is_proposed_only_where_it_helps():
    proposal = propose_order(interleaved(2, 4), strategy(2, 4, 1))
    assert proposal.verdict == "helps"
    assert ("10.0.0.2", 0, 1, 4) in proposal.moves
    assert len(proposal.moves) == 6  # ranks 0 and 7 stay
    assert propose_order(make_table("10.0.0.1", "10.0.0.2"), strategy(2, 8, 1)).verdict == "unneeded"


def test_where_no_order_can_help_that_is_said_with_the_degrees_that_would():
    proposal = propose_order(make_table("10.0.0.1", "10.0.0.2"), strategy(1, 16, 1))
    assert proposal.verdict == "impossible"
    assert "model_parallel (16) does not divide the 8 devices of a server" in proposal.message
    assert "model_parallel of 1, 2, 4, 8 would stay inside" in proposal.message
    assert "brings" not in proposal.message
    fewer = propose_order(interleaved(3, 4), strategy(4, 3, 1))
    assert fewer.verdict == "impossible"
    assert "brings 4 such groups down to 2" in fewer.message


@given(st.integers(1, 4), st.integers(1, 8), st.integers(1, 32), st.randoms(use_true_random=False))
def test_a_proposal_is_right_for_any_ranks(servers, devices, tensor, random):
    size = servers * devices
    if size % tensor:
        return
    ranks = list(range(size))
    random.shuffle(ranks)
    table = RankTable(
        "1.0",
        tuple(
            Server(
                f"10.0.0.{s}", tuple(Device(d, f"192.168.{s}.{d + 1}", ranks[s * devices + d]) for d in range(devices))
            )
            for s in range(servers)
        ),
    )
    degrees = strategy(size // tensor, tensor, 1)
    proposal = propose_order(table, degrees)
    assert (proposal.verdict == "unneeded") == (crossings(table, degrees) == [])
    if proposal.verdict == "impossible":
        assert devices % tensor
    if proposal.verdict == "helps":
        moved = {(server_id, device): then for server_id, device, _, then in proposal.moves}
        new = tuple(
            Server(s.server_id, tuple(Device(d.device_id, d.device_ip, moved.get((s.server_id, d.device_id), d.rank_id))
                                      for d in s.devices)) for s in table.servers
        )  # fmt: skip
        assert crossings(RankTable("1.0", new), degrees) == []


def picture(name: str = "a2_2x8", degrees: Strategy | None = None) -> draw.Picture:
    table = read_table(EXAMPLES / f"{name}.json")
    return draw.Picture(f"{name}.json", table, degrees, crossings(table, degrees) if degrees else ())


def test_the_terminal_shows_cards_ranks_links_and_coordinates():
    text = draw.terminal(picture(degrees=strategy(2, 4, 2)), 124)
    assert "a2_2x8.json: version 1.0, 2 servers x 8 devices = 16 ranks" in text
    assert "between servers: RoCE, card to card over device_ip" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["rank", *map(str, range(8, 16))] in rows
    assert ["pp.dp.tp", "1.0.0", "1.0.1", "1.0.2", "1.0.3", "1.1.0", "1.1.1", "1.1.2", "1.1.3"] in rows


@pytest.mark.parametrize("width", [20, 80, 124])
@pytest.mark.parametrize("name", ["a2_1x8", "a2_16x8", "a3_2x16", "cross_cluster_2x8"])
def test_every_rank_is_in_the_terminal_once_at_any_width(name, width):
    text = draw.terminal(picture(name), width)
    ranks = [int(word) for line in text.splitlines() if line.startswith("  rank") for word in line.split()[1:]]
    assert ranks == list(range(read_table(EXAMPLES / f"{name}.json").size))
    if width >= 80:
        assert max(len(line) for line in text.splitlines() if line.startswith("  rank")) <= width


@pytest.mark.parametrize("name", ["a2_1x8", "a2_2x8", "a2_16x8", "a3_2x16", "cross_cluster_2x8"])
def test_the_svg_is_xml_with_a_card_for_every_rank_inside_the_drawing(name):
    drawn = ElementTree.fromstring(draw.svg(picture(name)))
    cards = [rect for rect in drawn.iter(f"{SVG}rect") if "card" in rect.get("class", "").split()]
    texts = [text.text for text in drawn.iter(f"{SVG}text")]
    size = read_table(EXAMPLES / f"{name}.json").size
    assert len(cards) == size
    assert [text for text in texts if text and text.startswith("rank ")] == [f"rank {rank}" for rank in range(size)]
    corners = [(int(card.attrib["x"]), int(card.attrib["y"])) for card in cards]
    assert len(set(corners)) == size
    assert all(x + draw.CARD_WIDTH <= int(drawn.attrib["width"]) for x, _ in corners)
    assert all(y + draw.CARD_HEIGHT <= int(drawn.attrib["height"]) for _, y in corners)


def test_crossing_groups_have_red_borders():
    assert draw.svg(picture(degrees=strategy(1, 16, 1))).count('class="card crossing"') == 16
    assert draw.svg(picture(degrees=strategy(2, 8, 1))).count('class="card crossing"') == 0


def test_the_page_stands_alone_and_names_are_escaped():
    table = read_table(EXAMPLES / "a2_1x8.json")
    name = "<b>&.json"
    page = draw.html(draw.Picture(name, table, strategy(2, 4, 1)), ["warning: <x>"])
    assert name not in page
    assert "warning: &lt;x&gt;" in page
    assert page.count("<tr>") == 9
    assert "http" not in page.replace("http://www.w3.org/2000/svg", "")


def test_super_pods_and_clusters_are_framed():
    assert "super pod 0" in draw.svg(picture("a3_2x16"))
    assert "HCCS of the super pod" in draw.svg(picture("a3_2x16"))
    assert "cluster cluster_1" in draw.terminal(picture("cross_cluster_2x8"), 124)
