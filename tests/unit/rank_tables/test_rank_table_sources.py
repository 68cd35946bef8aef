"""Addresses from hccn_tool, hccn.conf, files and ssh: what is read, and what is said where there is nothing to read."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_table_samples import A3_HCCN_TOOL, A3_NPU_SMI, HCCN_TOOL

from msllm.errors import InputError
from rank_tables import sources
from rank_tables.sources import COLLECT, collect_here, collect_over_ssh, local_address, parse_collected, read_collected

CONF = """# set by hccn_tool
address_0=192.168.1.8
netmask_0=255.255.255.0
gateway_0=192.168.1.1
address_1 = 192.168.1.9
IPv6address_0=fd00::8/64
send_arp_status_0=1
address_10=192.168.1.18
"""


def faults(text: str) -> list[tuple[int, str]]:
    with pytest.raises(InputError) as caught:
        parse_collected(text, "x")
    return [(problem.line or 0, problem.message) for problem in caught.value.problems]


def test_hccn_conf_is_read_with_two_digit_ids_and_both_families():
    found = parse_collected(CONF, "hccn.conf")
    assert found.ipv4 == {0: "192.168.1.8", 1: "192.168.1.9", 10: "192.168.1.18"}
    assert found.ipv6 == {0: "fd00::8"}
    assert found.device_ips() == found.ipv4
    assert found.device_ips(ipv6=True) == found.ipv6


def test_ipv6_is_taken_where_there_is_nothing_else():
    assert parse_collected("IPv6address_3=fd00::3", "x").device_ips() == {3: "fd00::3"}


@pytest.mark.parametrize("head", ["[device 3]", "device 3", "Device 3:", "dev 3", "NPU 3", "$ hccn_tool -i 3 -ip -g"])
def test_output_collected_by_hand_is_read_under_any_usual_heading(head):
    found = parse_collected(f"{head}\nipaddr:192.168.1.8\nnetmask:255.255.255.0\n", "x")
    assert found.ipv4 == {3: "192.168.1.8"}


@pytest.mark.parametrize("line", ["ipaddr:fd00::8", "ipv6 addr: fd00::8/64", "IPv6 address : fd00::8"])
def test_ipv6_output_is_read_in_the_forms_it_may_have(line):
    assert parse_collected(f"[device 0]\nipaddr:\n{line}\n", "x").ipv6 == {0: "fd00::8"}


def test_every_line_that_does_not_do_is_named():
    text = "ipaddr:192.168.1.8\naddress_0=\naddress_1=127.0.0.1\naddress_2=10.0.0.1\naddress_2=10.0.0.2\naddress_3=10.0.0\n"
    assert faults(text) == [
        (1, 'of which device? put a line "[device 0]" before each device\'s output'),
        (2, "the address of device 0 is empty; expected an IP address"),
        (
            3,
            "the address of device 1 127.0.0.1 is a loopback address, which no other server can reach; put the address of "
            "the network card",
        ),
        (5, "device 2 has 10.0.0.1 above and 10.0.0.2 here"),
        (6, 'the address of device 3 "10.0.0" is not an IP address'),
    ]


def test_a_file_without_addresses_says_what_it_should_hold(tmp_path):
    (tmp_path / "a.conf").write_text("netmask_0=255.255.255.0\n")
    with pytest.raises(InputError, match="holds no device address; expected hccn.conf"):
        read_collected(tmp_path / "a.conf")
    with pytest.raises(InputError, match=r"b\.conf: cannot read the device addresses: No such file"):
        read_collected(tmp_path / "b.conf")


@given(st.text())
def test_any_text_is_read_or_refused(text):
    try:
        parse_collected(text, "x")
    except InputError as error:
        assert error.problems


def test_hccn_tool_is_asked_for_every_device(fake_tools, tmp_path):
    fake_tools(hccn_tool=HCCN_TOOL)
    found = collect_here(tmp_path / "none.conf")
    assert found.ipv4 == {device: f"192.168.1.{device + 8}" for device in range(8)}
    assert found.super_device_ids == {}


def test_an_a3_gives_16_dies_with_their_super_device_ids_and_pod(fake_tools, tmp_path):
    fake_tools(hccn_tool=A3_HCCN_TOOL, npu_smi=A3_NPU_SMI)
    found = collect_here(tmp_path / "none.conf")
    assert sorted(found.ipv4) == list(range(16))
    assert found.super_device_ids[0] == "37748736"
    assert found.super_device_ids[15] == str(37748736 + 7 * 4096 + 1)
    assert len(set(found.super_device_ids.values())) == 16
    assert found.super_pod == "3"


def test_hccn_conf_is_read_where_hccn_tool_is_silent(fake_tools, tmp_path):
    fake_tools(hccn_tool="exit 1")
    (tmp_path / "hccn.conf").write_text(CONF)
    assert collect_here(tmp_path / "hccn.conf").ipv4[10] == "192.168.1.18"


def test_p1_without_hccn_tool_and_hccn_conf_the_missing_file_and_the_ways_out_are_named(fake_tools, tmp_path):
    fake_tools(hccn_tool="exit 1")
    missing = tmp_path / "hccn.conf"
    with pytest.raises(InputError) as caught:
        collect_here(missing)
    message = str(caught.value)
    assert f"{missing} does not exist" in message
    for way in ("mount both from the host", "--hccn-conf", "--collected", "--device-ips"):
        assert way in message


def test_hosts_are_asked_over_ssh_with_the_same_script(fake_tools):
    ssh = 'for last; do :; done; [ "$5" = node2 ] && N=2 || N=1\ncat >/dev/null\necho "[device 0]"; echo "ipaddr:192.168.$N.8"'
    fake_tools(ssh=ssh)
    first, second = collect_over_ssh(["node1", "node2"])
    assert (first.ipv4, second.ipv4) == ({0: "192.168.1.8"}, {0: "192.168.2.8"})
    assert first.source == "ssh node1"


def test_the_script_that_ssh_is_given_runs_in_a_plain_shell(fake_tools):
    fake_tools(hccn_tool=HCCN_TOOL)
    done = subprocess.run(["sh", "-s", "--", "/none"], input=COLLECT, capture_output=True, text=True)
    assert done.stdout.splitlines()[:3] == ["[device 0]", "ipaddr:192.168.1.8", "netmask:255.255.255.0"]
    assert (done.returncode, done.stderr) == (0, "")


def test_every_host_that_does_not_answer_is_named(fake_tools):
    fake_tools(ssh='cat >/dev/null; [ "$5" = silent ] && exit 0; echo "$5: Permission denied" >&2; exit 255')
    with pytest.raises(InputError) as caught:
        collect_over_ssh(["node1", "silent", "node2"])
    messages = [problem.message for problem in caught.value.problems]
    assert messages[0].startswith("ssh node1 failed: node1: Permission denied; try `ssh node1 true`")
    assert messages[1] == "ssh silent: neither hccn_tool nor /etc/hccn.conf gave a device address there"
    assert len(messages) == 3


def test_a_host_that_ssh_would_take_for_an_option_is_refused():
    with pytest.raises(InputError, match="'-oProxyCommand=x' is no name that ssh can be given"):
        collect_over_ssh(["node1", "-oProxyCommand=x"])


def test_a_machine_without_ssh_is_told_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="cannot run ssh: it is not installed here"):
        collect_over_ssh(["node1"])


class Unroutable:
    """A socket of a machine without a default route."""

    def __enter__(self):
        raise OSError("Network is unreachable")

    def __exit__(self, *_):
        pass


def test_p1_p3_an_address_is_never_loopback_and_an_unknown_name_is_no_traceback(monkeypatch):
    monkeypatch.setattr(sources.socket, "socket", lambda *_: Unroutable())
    monkeypatch.setattr(sources.socket, "getaddrinfo", lambda *_: [(0, 0, 0, "", ("127.0.1.1", 0))])
    with pytest.raises(InputError, match="give --server-ip"):
        local_address()

    def unknown(*_):
        raise sources.socket.gaierror("Name or service not known")

    monkeypatch.setattr(sources.socket, "getaddrinfo", unknown)
    with pytest.raises(InputError, match="give --server-ip"):
        local_address()
    answers = [(0, 0, 0, "", ("127.0.1.1", 0)), (0, 0, 0, "", ("10.0.0.5", 0))]
    monkeypatch.setattr(sources.socket, "getaddrinfo", lambda *_: answers)
    assert local_address() == "10.0.0.5"
