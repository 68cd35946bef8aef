"""Servers, links and where ranks are."""

from __future__ import annotations

import pytest

from msllm.hardware.chips import CHIPS
from msllm.hardware.cluster import Cluster, usual_cluster
from msllm.hardware.links import HCCS_A2, ROCE_A2
from msllm.hardware.servers import SERVERS, USUAL_CHIP


@pytest.mark.parametrize("server", SERVERS.values(), ids=SERVERS)
def test_every_figure_has_a_source(server):
    assert CHIPS[server.chip].device_target == "Ascend"
    assert all((server.source, server.inside.source, server.between.source))
    assert server.inside.bandwidth(server.devices) > server.between.bandwidth(server.devices)


def test_every_chip_of_ascend_has_a_server():
    assert {name for name, chip in CHIPS.items() if chip.device_target == "Ascend"} == set(SERVERS)
    assert USUAL_CHIP in SERVERS


def test_a_small_group_uses_few_wires_of_a_full_mesh():
    assert [HCCS_A2.bandwidth(group) for group in (2, 4, 8)] == [28.0, 84.0, 196.0]
    assert ROCE_A2.bandwidth(2) == ROCE_A2.bandwidth(8) == 25.0


@pytest.mark.parametrize(("devices", "servers"), [(1, 1), (8, 1), (9, 2), (1024, 128)])
def test_the_usual_cluster_is_large_enough(devices, servers):
    cluster = usual_cluster("910B", devices)
    assert (cluster.servers, cluster.devices_per_server, cluster.hbm_gb) == (servers, 8, 64)
    assert cluster.devices >= devices


def test_ranks_are_dealt_out_server_by_server():
    cluster = Cluster(2, 4, "910B", 64, HCCS_A2, ROCE_A2)
    assert [cluster.server_of(rank) for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert not cluster.spans_servers([4, 5, 6, 7])
    assert cluster.spans_servers([3, 4])
