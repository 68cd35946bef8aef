"""Visible devices, rank table and number of ranks against each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from msllm.launch.devices import (
    VISIBLE,
    device_problems,
    server_of_node,
    table_node_problems,
    table_size_problems,
    visible_devices,
)
from rank_tables.check import read_table

TABLE = Path(__file__).parents[3] / "rank_tables/examples/a2_2x8.json"


@pytest.fixture(scope="module")
def table():
    return read_table(TABLE)


def texts(found) -> list[str]:
    return [str(problem) for problem in found]


@pytest.mark.parametrize("text", ["", "0,", "0,a", "0,0", "-1", "100"])
def test_what_is_no_list_of_devices_is_told(text: str):
    with pytest.raises(ValueError, match="must be different physical ids such as 4,5,6,7"):
        visible_devices({VISIBLE: text})


def test_more_ranks_than_visible_devices():
    [found] = texts(device_problems({VISIBLE: "4,5"}, 4, True, range(8)))
    assert found.startswith(f"4 ranks on this node need as many devices, but {VISIBLE} (4,5) shows 2")


def test_visible_devices_that_are_not_there():
    [found] = texts(device_problems({VISIBLE: "6,8"}, 2, True, range(8)))
    assert "(6,8) names device 8, and this host has 0, 1, 2, 3, 4, 5, 6, 7 (/dev/davinci*)" in found
    assert texts(device_problems({VISIBLE: "6,8"}, 2, False, ())) == []  # a laptop has none


def test_more_ranks_than_cards():
    [found] = texts(device_problems({}, 8, True, range(4)))
    assert "but it has 4 (/dev/davinci*)" in found


def test_p15_a_table_for_another_number_of_ranks_or_servers(table):
    [found] = texts(table_size_problems(table, TABLE, 8, 1))
    assert found.startswith(f"{TABLE}: holds 16 ranks, but the job has 8; make the table for these devices")
    [found] = texts(table_size_problems(table, TABLE, 16, 4))
    assert "holds 2 servers, but the job has 4 nodes" in found
    assert texts(table_size_problems(table, TABLE, 16, 2)) == []


def test_a_nodes_server_is_that_of_its_first_rank(table):
    assert [server_of_node(table, node, 8).server_id for node in (0, 1)] == ["10.0.0.1", "10.0.0.2"]


def test_nodes_in_another_order_than_the_table(table):
    [found] = texts(table_node_problems(table, TABLE, 1, 8, {}, {"127.0.0.1", "10.0.0.1"}))
    assert "ranks 8 to 15 are on 10.0.0.2, but node 1 has 10.0.0.1, 127.0.0.1" in found
    assert texts(table_node_problems(table, TABLE, 1, 8, {}, {"10.0.0.2"})) == []


def test_visible_devices_and_table_name_the_same_devices(table):
    environment = {VISIBLE: "7,6,5,4,3,2,1,0"}
    [found] = texts(table_node_problems(table, TABLE, 0, 8, environment, set()))
    assert f"has device 0, 1, 2, 3, 4, 5, 6, 7 on 10.0.0.1, but {VISIBLE} is 7,6,5,4,3,2,1,0" in found
    assert texts(table_node_problems(table, TABLE, 0, 8, {VISIBLE: "0,1,2,3,4,5,6,7"}, set())) == []
