"""Layer 6: addresses, links, TLS switches, and the rank table."""

from __future__ import annotations

import json

import pytest

from msllm.doctor.network import look_at_network
from msllm.doctor.visit import Facts, Visit

HEALTHY = "healthy_910b3"


@pytest.fixture
def look(server):
    """The layer's visit, for some devices of a healthy server: two, unless said otherwise."""

    def run(*transcripts: str, devices: int = 2, chip: str = "910B", recording: str = HEALTHY) -> Visit:
        facts = Facts(devices=list(range(devices)), chip=chip, container=any("dockerenv" in t for t in transcripts))
        visit = Visit(server(recording, *transcripts).host(), facts=facts)
        assert look_at_network(visit)
        return visit

    return run


def table(servers: dict[str, list[dict[str, str]]], **more: object) -> str:
    """A rank table in the environment: server_id -> devices without their ranks."""
    rank = iter(range(64))
    listed = [
        {"server_id": name, "device": [{"rank_id": str(next(rank)), **device} for device in devices]}
        for name, devices in servers.items()
    ]
    document = {
        "version": "1.0",
        "server_count": str(len(listed)),
        "server_list": listed,
        "status": "completed",
        **more,
    }
    return f"$ export RANK_TABLE_FILE=/job/table.json\n$ cat /job/table.json\n{json.dumps(document)}"


def devices(*ips: str, start: int = 0) -> list[dict[str, str]]:
    return [{"device_id": str(start + i), "device_ip": ip} for i, ip in enumerate(ips)]


HERE = devices("29.1.112.8", "29.1.112.9")
THERE = devices("29.1.113.8", "29.1.113.9")


def codes(visit: Visit) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in visit.findings]


def test_a_table_that_agrees(look):
    visit = look(table({"10.21.4.11": HERE}))
    assert codes(visit) == []
    assert visit.facts.rank_table_devices == [0, 1]
    assert "the rank table agrees with hccn_tool on server 10.21.4.11" in visit.seen


def test_without_devices_only_a_given_table_is_looked_at(server):
    assert not look_at_network(Visit(server("$ touch /x").host()))
    visit = Visit(server(table({"127.0.0.1": HERE})).host())
    assert look_at_network(visit)
    assert codes(visit) == [("error", "network.rank_table")]


def test_p1_without_hccn_conf_and_hccn_tool_both_are_named_and_how_to_get_them(look):
    """P1: hccl_tools.py ends with KeyError: '0'."""
    visit = look("$ rm hccn_tool /etc/hccn.conf")
    assert codes(visit) == [("warning", "network.addresses")]
    assert visit.findings[0].seen == "device 0,1 has no address: there is no hccn_tool and no /etc/hccn.conf"
    assert "--device-ips" in visit.findings[0].mend
    inside = look("$ touch /.dockerenv\n$ rm hccn_tool /etc/hccn.conf", table({"10.21.4.11": HERE}))
    assert inside.findings[0].severity == "error", "a job with a table needs them"
    assert "-v /etc/hccn.conf:/etc/hccn.conf" in inside.findings[0].mend


def test_p1_the_own_name_that_means_a_loopback_address(look):
    """P1: server_id 127.0.1.1, then EI0004."""
    visit = look("$ cat /etc/hosts\n127.0.0.1 localhost\n127.0.1.1 ascend-node-11.example ascend-node-11 # Debian")
    assert codes(visit) == [("warning", "network.hosts")]
    assert visit.findings[0].seen == "/etc/hosts says that ascend-node-11 is 127.0.1.1"
    assert "--server-ip 10.21.4.11" in visit.findings[0].mend


def test_p1_a_table_with_a_loopback_server_id(look):
    visit = look(table({"127.0.1.1": HERE}))
    assert codes(visit) == [("error", "network.rank_table")]
    assert "/job/table.json:1" in visit.findings[0].seen and "127.0.1.1" in visit.findings[0].seen


@pytest.mark.parametrize("ip", ["", "not-an-ip", "192.168.1"])
def test_p2_a_table_with_a_bad_device_ip(look, ip):
    """P2: device_ip invalid."""
    visit = look(table({"10.21.4.11": devices("29.1.112.8", ip)}))
    assert ("error", "network.rank_table") in codes(visit)
    assert any("device_ip" in finding.seen for finding in visit.findings)


def test_p4_a_table_with_a_device_twice(look):
    visit = look(table({"10.21.4.11": [HERE[0], {**HERE[1], "device_id": "0"}]}))
    assert codes(visit)[0] == ("error", "network.rank_table")
    assert "device_id" in visit.findings[0].seen


def test_a_table_that_is_not_there_or_no_json(look):
    visit = look("$ export RANK_TABLE_FILE=/nowhere.json")
    assert codes(visit) == [("error", "network.rank_table")]
    assert "No such file" in visit.findings[0].seen
    visit = look("$ export RANK_TABLE_FILE=/t.json\n$ cat /t.json\n{'version': 1}")
    assert codes(visit) == [("error", "network.rank_table")]


def test_a_table_of_other_servers(look):
    visit = look(table({"10.9.9.1": devices("30.0.0.1", "30.0.0.2"), "10.9.9.2": devices("30.0.0.3", "30.0.0.4")}))
    assert codes(visit) == [("warning", "network.rank_table")]
    assert "none of the 2 servers" in visit.findings[0].seen


def test_this_server_is_known_by_its_own_address_where_all_device_addresses_changed(look):
    visit = look(table({"10.21.4.11": devices("30.0.0.1", "30.0.0.2"), "10.21.4.12": THERE}))
    assert codes(visit) == [("error", "network.stale")] * 2


def test_an_a3_table_with_the_identity_of_a_replaced_die(look):
    dies = [
        {"device_id": str(i), "device_ip": f"29.3.16.{20 + i}", "super_device_id": str(37748736 + 65537 * i)}
        for i in range(2)
    ]
    dies[1]["super_device_id"] = "99"
    pods = [{"super_pod_id": "3", "server_list": [{"server_id": "10.21.4.11"}]}]
    visit = look(table({"10.21.4.11": dies}, version="1.2", super_pod_list=pods), recording="healthy_a3", chip="910C")
    assert codes(visit) == [("error", "network.stale")]
    assert "super_device_id 99 in the table, but hccn_tool says 37814273" in visit.findings[0].seen


def test_hccn_conf_is_read_where_there_is_no_hccn_tool(look):
    visit = look("$ rm hccn_tool", table({"10.21.4.11": HERE}))
    assert codes(visit) == []
    assert visit.facts.device_ips[1] == "29.1.112.9"


def test_p7_one_device_with_another_tls_switch(look):
    """P7: no connect after 120 s."""
    visit = look("$ hccn_tool -i 2 -tls -g\ndev_id:2, tls switch[1](0:disable, 1:enable), tls alarm time threshold[60]days",
                 devices=3)  # fmt: skip
    assert codes(visit) == [("error", "network.tls")]
    assert visit.findings[0].seen == "the TLS switch is 1 on device 2 and 0 on the others"
    assert visit.findings[0].mend == "hccn_tool -i 2 -tls -s enable 0"


DOWN = "$ hccn_tool -i {} -link -g\nlink status: DOWN"


def test_a_link_that_is_down_beside_one_that_is_up(look):
    visit = look(DOWN.format(1))
    assert codes(visit) == [("error", "network.link")]
    assert visit.findings[0].seen == "the link of device 1 is DOWN"


def test_a_server_without_any_cable_may_train_alone_but_not_with_others(look):
    both = [DOWN.format(0), DOWN.format(1)]
    assert codes(look(*both)) == [("warning", "network.link")]
    assert codes(look(*both, table({"10.21.4.11": HERE}))) == [("warning", "network.link")]
    assert codes(look(*both, table({"10.21.4.11": HERE, "10.21.4.12": THERE}))) == [("error", "network.link")]


@pytest.mark.parametrize(("health", "found"), [("Fault", 1), ("Socket fail", 1), ("Init", 0), ("Success", 0)])
def test_the_health_of_the_network(look, health, found):
    visit = look(f"$ hccn_tool -i 0 -net_health -g\nnet health status: {health}")
    assert codes(visit) == [("warning", "network.health")] * found


def test_hccn_tool_that_is_busy_is_asked_again_and_then_left(look):
    visit = look("$ hccn_tool -i 0 -tls -g\nhccn_tool is busy, please try again\n[exit code 1]")
    assert visit.facts.tls == {1: 0}
    assert len([ran for ran in visit.host.ran if ran.command == ("hccn_tool", "-i", "0", "-tls", "-g")]) == 3


def test_an_address_that_is_none(look):
    visit = look("$ hccn_tool -i 1 -ip -g\nipaddr:0.0.0.300")
    assert codes(visit)[0] == ("error", "network.addresses")


def test_an_hccn_tool_that_hangs_is_asked_once(server):
    host = server(HEALTHY, "$ hang hccn_tool -i 0 -ip -g").host(patience=0.02)
    visit = Visit(host, facts=Facts(devices=list(range(8)), chip="910B"))
    assert look_at_network(visit)
    assert codes(visit) == [("error", "network.hccn_tool")]
    assert visit.findings[0].seen == "hccn_tool -i 0 -ip -g: no answer in 0.4 s"
    assert [ran.command[0] for ran in host.ran].count("hccn_tool") == 1


def test_what_hccn_tool_says_instead_of_an_address(look):
    refused = [f"$ hccn_tool -i {device} {way}\nonly root can do this\n[exit code 1]" for device in (0, 1)
               for way in ("-ip -g", "-ip -inet6 -g")]  # fmt: skip
    visit = look(*refused, "$ rm /etc/hccn.conf")
    assert (
        visit.findings[0].seen
        == "device 0,1 has no address: there is no /etc/hccn.conf; hccn_tool says: only root can do this"
    )
