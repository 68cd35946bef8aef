"""From hosts and addresses to a table, and everything that does not fit said at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_table_samples import EXAMPLES

from msllm.errors import InputError
from rank_tables.generate import Wanted, collected_in, generate, write_table
from rank_tables.hosts import Host, HostFile, expand_ips, from_mapping, parse_plain
from rank_tables.sources import Collected
from rank_tables.table import in_rank_order

PATH = Path("hosts.txt")


def said(number: int, devices: int = 8, **more) -> Collected:
    return Collected(f"server {number}", {i: f"192.168.{number}.{i + 8}" for i in range(devices)}, **more)


def hosts(*names: str, **more) -> HostFile:
    return HostFile(tuple(Host(name, name, **more) for name in names))


def problems(*arguments) -> list[str]:
    with pytest.raises(InputError) as caught:
        generate(*arguments)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1", ["10.0.0.1"]),
        ("10.0.0.1, 10.0.0.3", ["10.0.0.1", "10.0.0.3"]),
        ("10.0.0.254-10.0.1.1", ["10.0.0.254", "10.0.0.255", "10.0.1.0", "10.0.1.1"]),
        ("10.0.0.8-10", ["10.0.0.8", "10.0.0.9", "10.0.0.10"]),
        ("fd00::e-fd00::10", ["fd00::e", "fd00::f", "fd00::10"]),
    ],
)
def test_address_lists_and_ranges(text, expected):
    assert expand_ips(text) == tuple(expected)


@pytest.mark.parametrize(
    "text", ["", "10.0.0", "10.0.0.9-8", "10.0.0.1-fd00::1", "10.0.0.1-999", "10.0.0.1,,10.0.0.2", "a-b"]
)
def test_what_is_no_address_list_is_refused(text):
    with pytest.raises(ValueError, match="range"):
        expand_ips(text)


def test_plain_host_files_are_read_in_their_usual_forms():
    listed = parse_plain(
        "# name ip slots\nnode1 10.0.0.1 8\nnode2 10.0.0.2 slots=4 # half\n\n10.0.0.3 8\n10.0.0.4\n", PATH
    )
    assert [(h.name, h.server_id, h.slots, h.line) for h in listed.hosts] == [
        ("node1", "10.0.0.1", 8, 2),
        ("node2", "10.0.0.2", 4, 3),
        ("10.0.0.3", "10.0.0.3", 8, 5),
        ("10.0.0.4", "10.0.0.4", None, 6),
    ]


def test_every_wrong_line_of_a_host_file_is_named():
    with pytest.raises(InputError) as caught:
        parse_plain("a 10.0.0.1 8 x\nnode 127.0.0.1 8\nnode 10.0.0.2 17\n10.0.0.300 8\n", PATH)
    lines = [(problem.line, problem.message.split(";")[0]) for problem in caught.value.problems]
    assert lines[0][0] == 1 and lines[0][1].startswith("expected `host ip slots`")
    assert [line for line, _ in lines] == [1, 2, 3, 4]
    with pytest.raises(InputError, match="lists no host"):
        parse_plain("# none\n", PATH)


def test_every_wrong_key_and_value_of_a_yaml_host_file_is_named():
    values = {
        "hosts": [
            {"ip": "10.0.0.1", "slot": 8},
            {"slots": 8},
            {"ip": "10.0.0.2", "slots": "8"},
            {"ip": "10.0.0.3", "device_ips": "10.0.0.9-8", "device_ids": ["x"]},
            {"ip": "10.0.0.4", "cluster": "far"},
            "10.0.0.5",
        ],
        "clusters": {"near": {"az_id": "a"}},
        "host": [],
    }
    lines = {("hosts", str(n)): n + 2 for n in range(6)}
    with pytest.raises(InputError) as caught:
        from_mapping(values, lines, PATH)
    text = str(caught.value)
    for expected in (
        "unknown key host; did you mean hosts?",
        "unknown key slot; did you mean slots?",
        "hosts.txt:3: ip is missing",
        "hosts.txt:4: slots must be a whole number, not '8'",
        "hosts.txt:5: device_ips: '10.0.0.9-8' is no range",
        "hosts.txt:5: device_ids must be numbers from 0 to 15",
        "hosts.txt:6: host 10.0.0.4: cluster far is not in clusters:",
        "a host must hold keys such as ip: and slots:, not '10.0.0.5'",
        "cluster near needs region_id",
    ):
        assert expected in text


@pytest.mark.parametrize("values", [{}, {"hosts": []}, {"hosts": "x"}])
def test_a_yaml_host_file_without_hosts_is_refused(values):
    with pytest.raises(InputError, match="hosts: must be a list such as"):
        from_mapping(values, {}, PATH)


@pytest.mark.parametrize("devices", [1, 2, 5, 8, 11, 16])
def test_any_number_of_devices_from_1_to_16(devices):
    table = generate(hosts("10.0.0.1"), [said(1, devices)], Wanted()).table
    assert [device.rank_id for device in table.servers[0].devices] == list(range(devices))


def test_ranks_follow_the_dictionary_order_of_server_ids_and_that_is_said_where_it_surprises():
    made = generate(hosts("10.0.0.2", "10.0.0.10"), [said(2, 2), said(10, 2)], Wanted())
    assert [(s.server_id, s.devices[0].rank_id) for s in made.table.servers] == [("10.0.0.10", 0), ("10.0.0.2", 2)]
    assert '"10.0.0.10" comes before "10.0.0.2"' in made.notes[0]


def test_visible_devices_are_physical_ids():
    table = generate(hosts("10.0.0.1"), [said(1)], Wanted(visible_devices=(4, 5, 6, 7))).table
    assert [(d.device_id, d.device_ip, d.rank_id) for d in table.servers[0].devices] == [
        (4, "192.168.1.12", 0),
        (5, "192.168.1.13", 1),
        (6, "192.168.1.14", 2),
        (7, "192.168.1.15", 3),
    ]


def test_visible_devices_keep_the_order_in_which_they_are_given_and_merge_keeps_it():
    made = generate(hosts("10.0.0.1"), [said(1)], Wanted(visible_devices=(7, 4)))
    assert [(d.device_id, d.rank_id) for d in made.table.servers[0].devices] == [(7, 0), (4, 1)]
    assert made.notes == ("the ranks of server 10.0.0.1 do not rise with device_id",)
    assert in_rank_order(made.table.servers) == made.table.servers


def test_slots_take_the_first_devices():
    table = generate(hosts("10.0.0.1", slots=2), [said(1)], Wanted()).table
    assert [device.device_id for device in table.servers[0].devices] == [0, 1]


def test_device_ips_are_dealt_out_in_the_order_of_the_hosts():
    listed = parse_plain("b 10.0.0.2 2\na 10.0.0.1 2\n", PATH)
    ips = expand_ips("192.168.1.1-4")
    table = generate(listed, None, Wanted(device_ips=ips)).table
    assert [d.device_ip for s in table.servers for d in s.devices] == [
        "192.168.1.3",
        "192.168.1.4",
        "192.168.1.1",
        "192.168.1.2",
    ]


def test_ipv6_is_taken_when_asked_for():
    both = Collected("x", {0: "10.1.0.1"}, {0: "fd00::1"})
    assert generate(hosts("10.0.0.1"), [both], Wanted()).table.servers[0].devices[0].device_ip == "10.1.0.1"
    assert generate(hosts("10.0.0.1"), [both], Wanted(ipv6=True)).table.servers[0].devices[0].device_ip == "fd00::1"


def test_a3_is_version_1_2_with_its_pod_and_1_0_when_asked_for():
    sdids = {device: str(100 + device) for device in range(16)}
    collected = [said(1, 16, super_device_ids=sdids, super_pod="3")]
    table = generate(hosts("10.0.0.1"), collected, Wanted()).table
    assert (table.version, table.super_pods[0].name, table.super_pods[0].server_ids) == ("1.2", "3", ("10.0.0.1",))
    assert table.servers[0].devices[15].more == {"super_device_id": "115"}
    assert generate(hosts("10.0.0.1"), collected, Wanted(super_pod="9")).table.super_pods[0].name == "9"
    plain = generate(hosts("10.0.0.1"), collected, Wanted(version="1.0")).table
    assert (plain.super_pods, plain.servers[0].devices[0].more) == ((), {})


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((hosts("10.0.0.1"), None, Wanted()), "where are its device addresses? give --device-ips, --collected or --ssh"),
        ((hosts("10.0.0.1", slots=9), [said(1)], Wanted()), "slots is 9, but server 1 has addresses of 8 devices"),
        (
            (hosts("10.0.0.1"), [said(1, 2)], Wanted(visible_devices=(1, 2))),
            "server 1 has no address of device 2; it has [0, 1]",
        ),
        ((hosts("10.0.0.1"), [said(1)], Wanted(visible_devices=(1, 1))), "a device is chosen twice: 1,1"),
        ((hosts("10.0.0.1"), [said(1)], Wanted(ipv6=True, visible_devices=(0,))), "has no IPv6 address of device 0"),
        (
            (hosts("10.0.0.1", slots=2), None, Wanted(device_ips=("10.1.0.1",))),
            "--device-ips gives 1 addresses, but 1 host have 2 devices",
        ),
        ((hosts("10.0.0.1", "10.0.0.2"), None, Wanted(device_ips=("10.1.0.1",))), "give its slots"),
        (
            (hosts("10.0.0.1", slots=1, device_ips=("10.1.0.1",)), None, Wanted(device_ips=("10.1.0.1",))),
            "give them there or with --device-ips, not both",
        ),
        ((hosts("10.0.0.1", device_ips=("10.1.0.1",), device_ids=(0, 1)), None, Wanted()), "2 devices are chosen, but there"),
        ((hosts("10.0.0.1"), None, Wanted(device_ips=expand_ips("10.1.0.1-17"))), "17 device_ips; a server has at most 16"),
        ((hosts("10.0.0.1", "10.0.0.2"), [said(1), said(1)], Wanted()), "device_ip 192.168.1.8 is that of"),
        ((hosts("10.0.0.1", "10.0.0.1"), [said(1), said(2)], Wanted()), "server_id 10.0.0.1 is that of"),
        ((hosts("10.0.0.1", "10.0.0.2"), [said(1, 8), said(2, 4)], Wanted()), "all must have as many"),
        ((hosts("127.0.1.1"), [said(1)], Wanted()), "127.0.1.1 means this machine on every machine"),
        ((hosts("10.0.0.1"), [said(1)], Wanted(version="1.2")), "which super pod? give --super-pod"),
        ((hosts("10.0.0.1"), [said(1)], Wanted(version="1.2", super_pod="0")), "every device has a super_device_id; none has"),
        (
            (hosts("10.0.0.1", device_ips=("10.1.0.1",), super_device_ids=("1", "2"), super_pod="0"), None, Wanted()),
            "super_device_ids has 2 values for 1 devices",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_said(arguments, expected):
    assert any(expected in message for message in problems(*arguments)), problems(*arguments)


def test_files_collected_by_hand_are_found_by_address_or_name(tmp_path):
    (tmp_path / "10.0.0.1").write_text("address_0=192.168.1.8\n")
    (tmp_path / "node2.conf").write_text("address_0=192.168.2.8\n")
    listed = [Host("node1", "10.0.0.1"), Host("node2", "10.0.0.2")]
    assert [found.ipv4[0] for found in collected_in(tmp_path, listed)[1]] == ["192.168.1.8", "192.168.2.8"]
    names = [host.server_id for host in collected_in(tmp_path, None)[0]]
    assert names == ["10.0.0.1", "node2"]
    with pytest.raises(InputError, match=r"host node3: there is no file node3.txt or 10.0.0.3.txt"):
        collected_in(tmp_path, [*listed, Host("node3", "10.0.0.3")])
    with pytest.raises(InputError, match="is no folder"):
        collected_in(tmp_path / "none", None)


def test_a_table_is_not_replaced_unless_asked_for(tmp_path):
    one = generate(hosts("10.0.0.1"), [said(1)], Wanted()).table
    two = generate(hosts("10.0.0.2"), [said(1)], Wanted()).table
    output = tmp_path / "t.json"
    write_table(one, output, overwrite=False)
    write_table(one, output, overwrite=False)
    with pytest.raises(InputError, match="exists and differs"):
        write_table(two, output, overwrite=False)
    assert output.read_text() == one.to_text()
    write_table(two, output, overwrite=True)
    assert output.read_text() == two.to_text()
    assert [file.name for file in tmp_path.iterdir()] == ["t.json"]
    with pytest.raises(InputError, match="the folder .*none does not exist"):
        write_table(one, tmp_path / "none" / "t.json", overwrite=False)
    with pytest.raises(InputError, match="is a folder"):
        write_table(one, tmp_path, overwrite=False)


def test_the_shipped_host_file_makes_the_shipped_table():
    listed = parse_plain((EXAMPLES / "hosts_2x8.txt").read_text(), PATH)
    ips = expand_ips("192.168.1.8-15,192.168.2.8-15")
    assert generate(listed, None, Wanted(device_ips=ips)).table.to_text() == (EXAMPLES / "a2_2x8.json").read_text()
