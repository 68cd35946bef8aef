"""No address and no name leaves a machine, and the same one always gets the same mask."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from msllm.doctor.anonymous import MASK, Anonymizer

KEY = b"key"
HOSTS, USERS = ("ascend-node-11.cluster.example", "ascend-node-11", "DEAD"), ("liwei", "z.min")

HIDE = Anonymizer(KEY, HOSTS, USERS)

V4 = st.ip_addresses(v=4).map(str).filter(lambda ip: not ip.startswith(("127.", "255.")) and ip != "0.0.0.0")
V6 = st.ip_addresses(v=6).filter(lambda ip: not ip.is_loopback and not ip.is_unspecified)
V6_TEXT = st.one_of(V6.map(str), V6.map(lambda ip: ip.exploded), V6.map(lambda ip: str(ip).upper()))
MAC = st.binary(min_size=6, max_size=6).map(lambda raw: raw.hex(":"))
NAME = st.sampled_from([*HOSTS, *USERS, "ASCEND-NODE-11"])
MAIL = st.sampled_from(["li.wei@example.com", "root@10.0.0.1", "liwei@ascend-node-11"])
HOME = st.sampled_from(["/home/somebody/x.json", "/home/liwei"])
SECRET = st.one_of(V4, V6_TEXT, MAC, NAME, MAIL, HOME)
BESIDE = st.sampled_from(
    [" ", "\n", "=", ",", '"', "[", "]", "(", ")", "|", ";", "://", " -> ", " addr:", ":", "/", "@", "-", "_"]
)
WORDS = st.sampled_from(
    ["driver", "910B3", "0000:C1:00.0", "12:30:19", "26.0.rc1", "7.9.0.1.205", "ms::ops", "", "[", "8118", "fe:"]
)


def secrets_of(text: str) -> str:
    """What of a home or a mail address may not be seen."""
    return text.removeprefix("/home/").partition("/")[0]


@given(st.lists(st.tuples(WORDS, BESIDE, SECRET, BESIDE, WORDS), max_size=6))
def test_no_original_leaks(parts):
    masked = HIDE.text("\n".join("".join(part) for part in parts))
    left = MASK.sub("", masked).lower()
    for _, _, secret, _, _ in parts:
        assert secrets_of(secret).lower() not in left, (secret, masked)


@given(V6_TEXT, V6_TEXT, V4, V4)
def test_the_same_address_gets_the_same_mask_and_another_one_another(one, two, three, four):
    hide = Anonymizer(KEY)
    masked = [hide.text(address) for address in (one, two, three, four)]
    assert all(MASK.fullmatch(mask) for mask in masked)
    assert hide.text(f"x {three} {one}") == f"x {masked[2]} {masked[0]}"
    import ipaddress

    same = ipaddress.ip_address(one) == ipaddress.ip_address(two)
    assert (masked[0] == masked[1]) == same
    assert (masked[2] == masked[3]) == (three == four)


def test_spellings_of_one_address_and_of_one_host_name():
    hide = Anonymizer(KEY, HOSTS)
    assert hide.text("fd00::1") == hide.text("FD00:0:0:0:0:0:0:1") == hide.text("fd00::1%eth0")
    assert hide.text("ascend-node-11") == hide.text("Ascend-Node-11")


def test_another_key_gives_other_masks():
    assert Anonymizer(b"a").text("10.0.0.1") != Anonymizer(b"b").text("10.0.0.1")
    assert Anonymizer(b"a").key_id == Anonymizer(b"a").key_id != Anonymizer(b"b").key_id


@pytest.mark.parametrize(
    "text",
    ["driver 24.1.0.3, firmware 7.9.0.1.205", "127.0.0.1 localhost ::1", "netmask:255.255.255.0", "0000:C1:00.0 12:30:19",
     "TLS switch[0](0:disable, 1:enable)", "root", "0.0.0.0", "linux:aarch64", "MemTotal: 1583456000 kB", "a -> b :: c",
     "mindspore::abstract, std::add, ms::ops::MatMul"],
)  # fmt: skip
def test_what_is_no_address_or_everybody_s_stays(text):
    assert Anonymizer(KEY, HOSTS, USERS, versions=["24.1.0.3", "7.9.0.1.205"]).text(text) == text


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("ipaddr:29.1.112.8", r"ipaddr:ip-\w{10}"),
        ("tcp://10.0.0.1:8118", r"tcp://ip-\w{10}:8118"),
        ("dead:10.0.0.1", r"host-\w{10}:ip-\w{10}"),
        ("ipaddr:fd00::1", r"ipaddr:ip-\w{10}"),
        ("iface:fd00::1", r"iface:ip-\w{10}"),
        ("::ffff:0:0:910B3", r"ip-\w{10}"),
        ("fd00::1%eth0.", r"ip-\w{10}"),
        ("ab:10.0.0.1", r"ab:ip-\w{10}"),
        ("[fd00::1]:8118", r"\[ip-\w{10}\]:8118"),
        ("::ffff:10.0.0.1", r"ip-\w{10}"),
        ("fd00::/64", r"ip-\w{10}/64"),
        ("address is fd00::1.", r"address is ip-\w{10}"),
        ("/home/liwei/rank_table.json", r"/home/user-\w{10}/rank_table.json"),
        ("liwei@ascend-node-11: ", r"mail-\w{10}: "),
        ("worker_ascend-node-11_0.log", r"worker_host-\w{10}_0.log"),
        ("52:54:00:12:34:56 52-54-00-12-34-56", r"mac-\w{10} mac-\w{10}"),
        ("worker_10.0.0.1.2", r"worker_ip-\w{10}"),
        ("10.0.0.1.", r"ip-\w{10}\."),
        ("10.0.0.1-10.0.0.8", r"ip-\w{10}-ip-\w{10}"),
    ],
)
def test_addresses_in_their_surroundings(text, form):
    masked = Anonymizer(KEY, HOSTS, USERS).text(text)
    assert re.fullmatch(form + r"\.?", masked), masked


def test_a_user_whose_name_is_a_number_or_everybody_s_masks_nothing():
    assert Anonymizer(KEY, hosts=["localhost", ""], users=["1000", "root", "HwHiAiUser"]).text(
        "1000 root localhost"
    ) == ("1000 root localhost")
