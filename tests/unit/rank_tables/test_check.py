"""Each kind of fault in a rank table is found, with its line and entry; several are found at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rank_table_samples import EXAMPLES, findings, make_table

from msllm.errors import InputError
from rank_tables.check import check_file, check_text, read_table
from rank_tables.table import from_document

NAMES = sorted(file.stem for file in EXAMPLES.glob("*.json"))


def messages(document) -> list[str]:
    return [str(fault.problem(None)) for fault in findings(document).faults]


def devices(document, server=0):
    return document["server_list"][server]["device"]


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_have_no_fault_and_are_as_the_writer_writes(name):
    text = (EXAMPLES / f"{name}.json").read_text()
    checked = check_text(text)
    assert checked.faults == []
    assert checked.table is not None
    assert checked.table.to_text() == text
    assert from_document(json.loads(text)) == checked.table


def test_there_is_an_example_of_every_kind():
    assert set(NAMES) == {"a2_1x8", "a2_2x8", "a2_16x8", "a3_2x16", "cross_cluster_2x8"}


def test_a_device_of_the_text_stands_on_one_line():
    lines = make_table("10.0.0.1", devices=2).to_text().splitlines()
    assert '        {"device_id": "1", "device_ip": "192.168.1.9", "rank_id": "1"}' in lines


# Spoilers of the 2x8 example: what is done, and the fault that must come of it.
SPOILED = {
    "rank twice": (lambda d: devices(d)[1].update(rank_id="0"), "rank_id 0 is that of server_list[0].device[0] too (line 11)"),
    "rank left out": (lambda d: devices(d)[1].update(rank_id="16"), "rank_id 16 is too large: 16 devices have the ranks 0 to 15"),
    "gap": (lambda d: devices(d)[1].update(rank_id="16"), "no device has rank_id 1: 16 devices need the ranks 0 to 15"),
    "device ip twice": (
        lambda d: devices(d, 1)[0].update(device_ip="192.168.1.8"),
        "server_list[1].device[0]: device_ip 192.168.1.8 is that of server_list[0].device[0] too (line 10)",
    ),
    "server id twice": (
        lambda d: d["server_list"][1].update(server_id="10.0.0.1"),
        "server_list[1]: server_id 10.0.0.1 is that of server_list[0] too (line 6)",
    ),
    "loopback server": (lambda d: d["server_list"][0].update(server_id="127.0.1.1"), "127.0.1.1 means this machine"),
    "localhost": (lambda d: d["server_list"][0].update(server_id="localhost"), "localhost means this machine"),
    "loopback device": (lambda d: devices(d)[0].update(device_ip="127.0.0.1"), "127.0.0.1 is a loopback address"),
    "no address": (lambda d: devices(d)[0].update(device_ip="0.0.0.0"), "is no address of one network card"),
    "server id like an ip": (lambda d: d["server_list"][0].update(server_id="10.0.0.300"), '"10.0.0.300" is not an IP address'),
    "masked sample": (lambda d: d["server_list"][0].update(server_id="10.*.*.*"), '"10.*.*.*" is not an IP address'),
    "long server id": (lambda d: d["server_list"][0].update(server_id="n" * 64), "has 64 characters; at most 63"),
    "server count": (lambda d: d.update(server_count="3"), "server_count is 3, but server_list holds 2"),
    "unequal": (
        lambda d: devices(d, 1).pop(),
        "server 10.0.0.2 has 7 devices, but 1 of 2 servers have 8; all must have as many",
    ),
    "number instead of text": (
        lambda d: devices(d)[3].update(rank_id=3),
        'server_list[0].device[3]: rank_id must be text in double quotes, not 3; write "3"',
    ),
    "count as number": (lambda d: d.update(server_count=2), 'server_count must be text in double quotes, not 2; write "2"'),
    "null": (lambda d: devices(d)[3].update(device_ip=None), "device_ip must be text in double quotes, not null"),
    "leading zero": (lambda d: devices(d)[3].update(device_id="03"), "digits only and no leading zeros"),
    "device out of range": (lambda d: devices(d)[3].update(device_id="16"), "16 is not a device of a server of up to 16"),
    "misspelt": (
        lambda d: devices(d)[3].update(rankid=devices(d)[3].pop("rank_id")),
        "unknown key rankid; did you mean rank_id?",
    ),
    "wrong case": (lambda d: d.update(Version=d.pop("version")), "unknown key Version; did you mean version?"),
    "address left out": (lambda d: devices(d)[0].pop("device_ip"), "device_ip is missing here; 15 of 16 have it"),
    "missing": (lambda d: d["server_list"][1].pop("device"), "server_list[1]: key device is missing"),
    "not finished": (lambda d: d.update(status="initializing"), "whoever writes this table has not finished"),
    "unknown version": (lambda d: d.update(version="1.1"), 'version "1.1" is not known; expected 1.0 or 1.2'),
    "1.2 without pods": (lambda d: d.update(version="1.2"), "version is 1.2 (A3), which needs super_pod_list"),
    "empty devices": (lambda d: d["server_list"][1].update(device=[]), "server_list[1]: device is empty"),
    "a list no list": (lambda d: d.update(server_list="x"), 'server_list must be a list [...], not "x"'),
    "an entry no mapping": (lambda d: devices(d).__setitem__(0, "0"), 'a device must be a mapping {...}, not "0"'),
    "partly there": (
        lambda d: d["server_list"][1].pop("host_nic_ip"),
        "server_list[1]: host_nic_ip is missing here; 1 of 2 have it",
    ),
    "two families": (lambda d: devices(d)[0].update(device_ip="fd00::8"), "device_ip fd00::8 is IPv6, but 15 devices have IPv4"),
    "dpu without clusters": (lambda d: [x.update(dpu_ip="10.9.0.1") for s in (0, 1) for x in devices(d, s)], "dpu_ip belongs"),
    "another file's layout": (
        lambda d: d.update(server_group_list=d.pop("server_list")),
        "server_group_list belongs to a table of MindCluster's",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", SPOILED)
def test_a_fault_is_named(kind, example):
    spoil, expected = SPOILED[kind]
    document = example("a2_2x8")
    spoil(document)
    found = messages(document)
    assert any(expected in message for message in found), found


def test_all_faults_come_at_once_in_the_order_of_the_file(example):
    document = example("a2_2x8")
    devices(document)[2].update(rank_id=2)
    devices(document, 1)[0].update(device_ip="192.168.1.8")
    document["server_list"][1]["host_nic_ip"] = "eth0"
    document["status"] = "done"
    faults = findings(document).faults
    assert [fault.rule for fault in faults] == ["type", "duplicate", "value", "value"]
    assert [fault.line for fault in faults] == sorted(fault.line for fault in faults)


def test_a_value_twice_is_found_under_other_spellings():
    table = make_table("10.0.0.1", devices=2).to_dict()
    devices(table)[0]["device_ip"], devices(table)[1]["device_ip"] = "fd00::8", "fd00:0::8"
    assert any("is that of" in message for message in messages(table))


def test_a_rank_order_against_the_server_ids_is_named_with_the_right_ranks():
    table = make_table("10.0.0.2", "10.0.0.10", devices=2)
    document = table.to_dict()
    assert [server["server_id"] for server in document["server_list"]] == ["10.0.0.10", "10.0.0.2"]
    for server in document["server_list"]:
        for device in server["device"]:
            device["rank_id"] = str((int(device["rank_id"]) + 2) % 4)
    faults = findings(document).faults
    assert [fault.rule for fault in faults] == ["order", "order"]
    assert faults[0].message == (
        "server 10.0.0.10 holds the ranks 2, 3; by dictionary order of server_id its ranks are 0 to 1"
    )


def test_an_order_that_surprises_is_noted():
    (note,) = check_text(make_table("10.0.0.2", "10.0.0.10").to_text()).notes
    assert '"10.0.0.10" comes before "10.0.0.2"' in note.message
    assert check_text(make_table("10.0.0.1", "10.0.0.2").to_text()).notes == []


def test_ranks_that_do_not_rise_with_the_devices_are_noted_not_refused():
    document = make_table("10.0.0.1", devices=2).to_dict()
    devices(document)[0]["rank_id"], devices(document)[1]["rank_id"] = "1", "0"
    found = findings(document)
    assert (found.faults, len(found.notes)) == ([], 1)


def test_an_unknown_key_like_no_other_is_left_alone(example):
    document = example("a2_1x8")
    document["zzz"] = {"any": 1}
    found = findings(document)
    assert found.faults == []
    assert "zzz is not known here and is left alone" in found.notes[0].message


def test_xc_llm_ascend_2939_one_super_device_id_for_all_is_one_fault(example):
    document = example("a3_2x16")
    for device in devices(document):
        device["super_device_id"] = "37748736"
    (message,) = messages(document)
    assert "super_device_id 37748736 is shared by 16 devices of super pod 0" in message
    assert "npu-smi info -t spod-info" in message


def test_a_super_device_id_may_come_again_in_another_pod(example):
    document = example("a3_2x16")
    document["super_pod_list"] = [
        {"super_pod_id": str(n), "server_list": [{"server_id": f"10.0.0.{n}"}]} for n in (1, 2)
    ]
    for first, second in zip(devices(document, 0), devices(document, 1)):
        second["super_device_id"] = first["super_device_id"]
    assert messages(document) == []


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda d: d.update(version="1.0"), "version is 1.0, but the table holds super_pod_list"),
        (lambda d: d.pop("super_pod_list"), "which needs super_pod_list"),
        (lambda d: d["super_pod_list"][0]["server_list"].pop(), "server 10.0.0.2 is missing in super_pod_list"),
        (
            lambda d: d["super_pod_list"][0]["server_list"].append({"server_id": "10.0.0.9"}),
            "server 10.0.0.9 is not in the table's server_list",
        ),
        (
            lambda d: d["super_pod_list"].append({"super_pod_id": "1", "server_list": [{"server_id": "10.0.0.1"}]}),
            "server_id 10.0.0.1 is that of super_pod_list[0].server_list[0] too",
        ),
        (
            lambda d: d["super_pod_list"].append({"super_pod_id": "0", "server_list": [{"server_id": "10.0.0.1"}]}),
            "super_pod_id 0 is that of super_pod_list[0] too",
        ),
        (lambda d: devices(d)[0].pop("super_device_id"), "super_device_id is missing here; 31 of 32 have it"),
        (
            lambda d: [device.pop("super_device_id") for s in (0, 1) for device in devices(d, s)],
            "in which every device has a super_device_id; none has",
        ),
        (lambda d: d.update(cluster_list=[]), "cluster_list belongs to version 1.0"),
    ],
)
def test_a_faulty_super_pod_is_named(spoil, expected, example):
    document = example("a3_2x16")
    spoil(document)
    assert any(expected in message for message in messages(document)), messages(document)


@pytest.mark.parametrize(
    ("spoil", "expected"),
    [
        (lambda d: d["cluster_list"].pop(), "server 10.1.0.1 is missing in cluster_list"),
        (lambda d: d["cluster_list"][0].update(network_type="IB"), 'network_type "IB" is not known; expected ROCE'),
        (lambda d: d.pop("cluster_list"), "dpu_ip belongs to tables with cluster_list"),
        (lambda d: [s.pop("server_ip") for s in d["server_list"]], "needs server_ip in every server"),
        (lambda d: d["cluster_list"][1].update(cluster_id="cluster_0"), "cluster_id cluster_0 is that of cluster_list[0]"),
    ],
)  # fmt: skip
def test_a_faulty_cluster_is_named(spoil, expected, example):
    document = example("cross_cluster_2x8")
    spoil(document)
    assert any(expected in message for message in messages(document)), messages(document)


def test_mindsporess_own_cross_cluster_layout_is_accepted(example):
    document = example("cross_cluster_2x8")
    for number, server in enumerate(document["server_list"]):
        server["server_id"] = f"server_{number}"
        server["pod_ip"] = "127.0.0.1"
        document["cluster_list"][number]["server_list"] = [{"server_id": f"server_{number}"}]
        for device in server["device"]:
            device["dpu_ip"] = "8.2.17.60"
    assert messages(document) == []


def test_a_missing_comma_has_line_and_column(tmp_path: Path):
    path = tmp_path / "table.json"
    path.write_text(make_table("10.0.0.1", devices=2).to_text().replace('"rank_id": "0"},', '"rank_id": "0"}'))
    with pytest.raises(InputError) as caught:
        read_table(path)
    (problem,) = caught.value.problems
    assert (problem.file, problem.line) == (path, 8)
    assert problem.message == "column 71: a comma is missing here, before '{'"


def test_a_repeated_key_is_a_fault():
    text = make_table("10.0.0.1", devices=1).to_text().replace('"rank_id": "0"', '"rank_id": "0", "rank_id": "0"')
    assert [fault.message for fault in check_text(text).faults] == ["key rank_id is given twice; keep one"]


@pytest.mark.parametrize("text", ["", "[]", "null", '"x"', "{}", '{"server_list": [[]]}', '{"server_list": {"a": 1}}'])
def test_what_is_no_table_is_a_fault_and_never_an_exception(text):
    found = check_text(text)
    assert found.faults
    assert found.table is None


def test_files_that_cannot_be_read_are_input_errors(tmp_path):
    with pytest.raises(InputError, match="cannot read this rank table: No such file"):
        check_file(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b'{"a":\n"\xff"}')
    (fault,) = check_file(tmp_path / "binary.json").faults
    assert (fault.line, fault.message) == (2, "not UTF-8 text: byte 0xff")


def test_p2_an_empty_or_bad_device_ip_is_found_before_launch():
    document = make_table("10.0.0.1", devices=2).to_dict()
    devices(document)[0]["device_ip"] = ""
    devices(document)[1]["device_ip"] = "192.168.1"
    assert messages(document) == [
        "server_list[0].device[0]: device_ip is empty; expected an IP address",
        'server_list[0].device[1]: device_ip "192.168.1" is not an IP address',
    ]


def test_one_server_may_leave_device_ips_out_and_several_may_not():
    one, two = make_table("10.0.0.1", devices=2).to_dict(), make_table("10.0.0.1", "10.0.0.2", devices=2).to_dict()
    for document in (one, two):
        for server in document["server_list"]:
            for device in server["device"]:
                del device["device_ip"]
    found = findings(one)
    assert (found.faults, found.notes[0].message) == (
        [],
        "no device has a device_ip: enough for one server, but not for a table of several",
    )
    assert found.table is not None
    assert found.table.to_dict()["server_list"] == one["server_list"]
    assert messages(two) == ["server_list: no device has a device_ip: with more than one server every device needs it"]


def test_p4_a_device_id_twice_is_found_with_line_and_entry():
    document = make_table("10.0.0.1", devices=2).to_dict()
    devices(document)[1]["device_id"] = "0"
    (fault,) = findings(document).faults
    assert fault.entry == "server_list[0].device[1]"
    assert "device_id 0 is that of server_list[0].device[0] too" in fault.message
