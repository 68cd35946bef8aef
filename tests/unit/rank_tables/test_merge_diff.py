"""Tables put together, compared with each other, and held against what servers say now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rank_table_samples import A3_HCCN_TOOL, A3_NPU_SMI, EXAMPLES, HCCN_TOOL, make_table

from msllm.errors import InputError
from rank_tables.against import stale
from rank_tables.check import check_text, read_table
from rank_tables.diff import diff
from rank_tables.merge import merge


def write(path: Path, *server_ids: str, spoil=None, **more) -> Path:
    document = make_table(*server_ids, **more).to_dict()
    if spoil is not None:
        spoil(document)
    path.write_text(json.dumps(document))
    return path


def address(server: int):
    """Gives the devices of one server other addresses, so that two tables of one server fit together."""

    def spoil(document):
        for device in document["server_list"][0]["device"]:
            device["device_ip"] = device["device_ip"].replace("192.168.1.", f"192.168.{server}.")

    return spoil


def merge_problems(*paths: Path) -> str:
    with pytest.raises(InputError) as caught:
        merge(paths)
    return str(caught.value)


def test_ranks_are_numbered_anew_whatever_the_order_of_the_files(tmp_path):
    second = write(tmp_path / "b.json", "10.0.0.2", spoil=address(2))
    first = write(tmp_path / "a.json", "10.0.0.1")
    made = merge([second, first])
    assert made.table == make_table("10.0.0.1", "10.0.0.2")
    assert check_text(made.table.to_text()).faults == []
    assert made.notes == ()


def test_a_surprising_order_is_noted(tmp_path):
    paths = [write(tmp_path / f"{n}.json", f"10.0.0.{n}", spoil=address(n)) for n in (2, 10)]
    assert '"10.0.0.10" comes before "10.0.0.2"' in merge(paths).notes[0]


def test_one_table_with_wrong_ranks_is_put_right(tmp_path):
    def interleave(document):
        for number, server in enumerate(document["server_list"]):
            for device in server["device"]:
                device["rank_id"] = str(2 * int(device["device_id"]) + number)

    path = write(tmp_path / "a.json", "10.0.0.1", "10.0.0.2", spoil=interleave)
    with pytest.raises(InputError, match="by dictionary order"):
        read_table(path)
    assert merge([path]).table == make_table("10.0.0.1", "10.0.0.2")


def test_pods_and_clusters_are_joined_by_name(tmp_path):
    for name in ("a3_2x16", "cross_cluster_2x8"):
        whole = json.loads((EXAMPLES / f"{name}.json").read_text())
        groups = "super_pod_list" if name.startswith("a3") else "cluster_list"
        paths = []
        for number, server in enumerate(whole["server_list"]):
            ranks = [{**device, "rank_id": str(rank)} for rank, device in enumerate(server["device"])]
            part = {**whole, "server_count": "1", "server_list": [{**server, "device": ranks}]}
            part[groups] = [
                {**group, "server_list": [{"server_id": server["server_id"]}]}
                for group in whole[groups]
                if {"server_id": server["server_id"]} in group["server_list"]
            ]
            paths.append(tmp_path / f"{name}_{number}.json")
            paths[-1].write_text(json.dumps(part))
        assert merge(paths[::-1]).table.to_dict()["server_list"] == whole["server_list"]
        assert sorted(map(str, merge(paths[::-1]).table.to_dict()[groups])) == sorted(map(str, whole[groups]))


def test_what_does_not_fit_between_files_is_named_by_file(tmp_path):
    first = write(tmp_path / "a.json", "10.0.0.1")
    same = write(tmp_path / "b.json", "10.0.0.1", spoil=address(2))
    ips = write(tmp_path / "c.json", "10.0.0.3")
    fewer = write(tmp_path / "d.json", "10.0.0.4", devices=4, spoil=address(4))
    text = merge_problems(first, same, ips, fewer, EXAMPLES / "a3_2x16.json", EXAMPLES / "cross_cluster_2x8.json")
    for expected in (
        f"{same}: server 10.0.0.1 is in {first} too",
        f"{ips}: device_ip 192.168.1.8 of server 10.0.0.3 is in {first} too",
        f"{fewer}: has 4 devices a server, but {first} has 8",
        f"a3_2x16.json: has version 1.2, but {first} has 1.0",
        "cross_cluster_2x8.json: cluster_list stands in only one of this file and",
    ):
        assert expected in text
    assert f"{first}: is given twice" in merge_problems(first, first)


def test_faults_of_all_files_come_at_once(tmp_path):
    (tmp_path / "a.json").write_text("{")
    bad = write(tmp_path / "b.json", "10.0.0.2", spoil=lambda d: d.update(status="x"))
    text = merge_problems(tmp_path / "a.json", bad, tmp_path / "none.json")
    for expected in ("a.json:1: column 2", 'status "x" is not known', "none.json: cannot read"):
        assert expected in text


def test_equal_tables_have_no_difference_whatever_their_order_in_the_file():
    table = make_table("10.0.0.1", "10.0.0.2")
    turned = type(table)(table.version, table.servers[::-1])
    assert diff(table, turned) == []


def test_differences_are_told_by_server_device_and_rank():
    old = make_table("10.0.0.1", "10.0.0.2", devices=2)
    document = make_table("10.0.0.1", "10.0.0.3", devices=2).to_dict()
    document["server_list"][0]["device"][1]["device_ip"] = "192.168.1.99"
    document["server_list"][0]["host_nic_ip"] = "10.0.0.1"
    checked = check_text(json.dumps(document))
    assert checked.table is not None
    assert [str(difference) for difference in diff(old, checked.table)] == [
        "server 10.0.0.1: host_nic_ip: reserve -> 10.0.0.1",
        "server 10.0.0.2: removed, was 2 devices",
        "server 10.0.0.3: added, 2 devices",
        "device 1 of 10.0.0.1: device_ip: 192.168.1.9 -> 192.168.1.99",
        "rank 2: device 0 of 10.0.0.2 -> device 0 of 10.0.0.3",
        "rank 3: device 1 of 10.0.0.2 -> device 1 of 10.0.0.3",
    ]


def test_differences_of_groups_and_devices_are_told():
    old = read_table(EXAMPLES / "a3_2x16.json")
    document = old.to_dict()
    document["super_pod_list"][0]["super_pod_id"] = "5"
    for server in document["server_list"]:
        server["device"].pop()
    for rank, device in enumerate(device for server in document["server_list"] for device in server["device"]):
        device["rank_id"] = str(rank)
    checked = check_text(json.dumps(document))
    assert checked.table is not None
    found = [str(difference) for difference in diff(old, checked.table)]
    assert found[:3] == [
        "ranks: 32 -> 30",
        "super pod 0: removed, was servers 10.0.0.1, 10.0.0.2",
        "super pod 5: added, servers 10.0.0.1, 10.0.0.2",
    ]
    assert "device 15 of 10.0.0.1: removed, was 192.168.1.23" in found
    assert "rank 15: device 15 of 10.0.0.1 -> device 0 of 10.0.0.2" in found
    assert "rank 31: removed, was device 15 of 10.0.0.2" in found


def test_a_table_that_fits_its_servers_is_not_stale(fake_tools, tmp_path):
    fake_tools(hccn_tool=HCCN_TOOL)
    assert stale(make_table("10.0.0.1"), "hccn") == ([], ["10.0.0.1"])
    conf = tmp_path / "10.0.0.2.txt"
    conf.write_text("".join(f"address_{i}=192.168.2.{i + 8}\n" for i in range(8)))
    table = make_table("10.0.0.1", "10.0.0.2")
    assert stale(table, str(conf)) == ([], ["10.0.0.2"])
    assert stale(table, "hccn", "10.0.0.2", conf) == ([], ["10.0.0.2"])


def test_p1_changed_addresses_and_missing_devices_make_a_table_stale(tmp_path):
    conf = tmp_path / "10.0.0.1.conf"
    conf.write_text("address_0=192.168.1.8\naddress_1=192.168.1.77\n")
    found, _ = stale(make_table("10.0.0.1", devices=3), str(conf))
    assert [finding.message for finding in found] == [
        f"device 1 (rank 1) has device_ip 192.168.1.9 in the table, but {conf} says 192.168.1.77",
        f"device 2 (rank 2) is in the table, but {conf} knows no such device",
    ]
    assert {finding.rule for finding in found} == {"stale"}


def test_super_device_ids_and_pods_are_compared_too(fake_tools):
    fake_tools(hccn_tool=A3_HCCN_TOOL, npu_smi=A3_NPU_SMI)
    found, _ = stale(read_table(EXAMPLES / "a3_2x16.json"), "hccn", "10.0.0.1")
    messages = [finding.message for finding in found]
    assert any("device 1 (rank 1) has super_device_id 37750784 in the table, but" in message for message in messages)
    assert any("super_pod_id is 0, but" in message and message.endswith("says 3") for message in messages)


def test_a_folder_is_compared_server_by_server(tmp_path):
    for number in (1, 2):
        text = "".join(f"address_{i}=192.168.{number}.{i + 8}\n" for i in range(8))
        (tmp_path / f"10.0.0.{number}.txt").write_text(text)
    assert stale(make_table("10.0.0.1", "10.0.0.2"), str(tmp_path)) == ([], ["10.0.0.1", "10.0.0.2"])
    with pytest.raises(InputError, match="no file 10.0.0.3.txt"):
        stale(make_table("10.0.0.1", "10.0.0.2", "10.0.0.3"), str(tmp_path))


def test_a_source_of_an_unknown_server_asks_which_one(tmp_path):
    conf = tmp_path / "hccn.conf"
    conf.write_text("address_0=192.168.1.8\n")
    table = make_table("10.0.0.1", "10.0.0.2", devices=1)
    with pytest.raises(
        InputError, match="of which server is .*hccn.conf. give --server-ip with one of 10.0.0.1, 10.0.0.2"
    ):
        stale(table, str(conf))
    with pytest.raises(InputError, match="--server-ip 10.0.0.7 is not in the rank table"):
        stale(table, str(conf), "10.0.0.7")
