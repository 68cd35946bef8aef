"""The keys of a rank table and what their values must be, level by level.

Sources: MindSpore's tutorial "rank table startup" (1.0 and cross-cluster), CANN's HCCL user guide (1.0 and 1.2), MindCluster's
"hccl.json file description" (device_logical_id, container_ip).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from dataclasses import dataclass

VERSIONS = ("1.0", "1.2")
MAX_DEVICES = 16
"""Devices of one server: 8 on an Atlas 800T A2, 16 on an A2 Box16 and on an A3 (8 packages of 2 dies)."""
_COUNT = re.compile(r"(0|[1-9][0-9]*)\Z")
_LIKE_AN_IP = re.compile(r"[0-9.*x]*\.[0-9.*x]*\Z|[0-9a-fA-F:]*:[0-9a-fA-F:]*\Z")

Rule = Callable[[str], "str | None"]
"""What is wrong with a text; None: nothing."""


@dataclass(frozen=True)
class Key:
    """One key: whether it must be there, and the rule for its value (None: a list, which is looked into)."""

    required: bool
    rule: Rule | None


def same_address(text: str) -> str:
    """One spelling for each IP address, so that "fd00::1" equals "fd00:0::1"; other text as it is."""
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return text


def is_loopback(text: str) -> bool:
    """Whether a name or address means "this machine", which no other machine can reach."""
    try:
        return ipaddress.ip_address(text).is_loopback
    except ValueError:
        return text.lower() in ("localhost", "localhost.localdomain")


def wrong_address(text: str) -> str | None:
    """An IP address that another machine can send to."""
    problem = wrong_any_address(text)
    if problem:
        return problem
    address = ipaddress.ip_address(text)
    if address.is_loopback:
        return f"{text} is a loopback address, which no other server can reach; put the address of the network card"
    if address.is_unspecified or address.is_multicast:
        return f"{text} is no address of one network card"
    return None


def wrong_any_address(text: str) -> str | None:
    """An IP address of any kind, loopback too: pod_ip is 127.0.0.1 in MindSpore's own sample."""
    try:
        if "%" not in text:
            ipaddress.ip_address(text)
            return None
    except ValueError:
        pass
    return f'"{text}" is not an IP address' if text else "is empty; expected an IP address"


def wrong_host_nic(text: str) -> str | None:
    """`reserve`, which all samples hold, or an address."""
    if text in ("reserve", "reserved"):
        return None
    return wrong_address(text) and f'"{text}" is neither "reserve" nor the IP address of a network card'


def wrong_server_id(text: str) -> str | None:
    """A unique name, usually the address: below 64 characters, without spaces."""
    if is_loopback(text):
        return f"{text} means this machine on every machine; put the server's own address (/etc/hosts often maps the name so)"
    if wrong_name(text):
        return wrong_name(text)
    return wrong_address(text) if _LIKE_AN_IP.match(text) else None


def wrong_name(text: str) -> str | None:
    """Text of 1 to 63 characters without spaces."""
    if not text:
        return "is empty"
    if len(text) > 63:
        return f"has {len(text)} characters; at most 63 are allowed"
    if any(character.isspace() or not character.isprintable() for character in text):
        return f"{text!r} holds spaces or control characters"
    return None


def number(low: int, high: int, what: str) -> Rule:
    """A decimal number in a range, written without leading zeros."""

    def wrong(text: str) -> str | None:
        if not _COUNT.match(text) or len(text) > 12:
            return f'"{text}" is not {what}: a number from {low} to {high}, digits only and no leading zeros'
        return None if low <= int(text) <= high else f"{text} is not {what}: {low} to {high}"

    return wrong


def one_of(*legal: str) -> Rule:
    """One of a few words."""

    def wrong(text: str) -> str | None:
        return None if text in legal else f'"{text}" is not known; expected {" or ".join(legal)}'

    return wrong


def wrong_status(text: str) -> str | None:
    """A finished table."""
    if text == "initializing":
        return "is initializing: whoever writes this table has not finished, and HCCL would wait for it"
    return one_of("completed")(text)


_PORT = number(1, 65535, "a port")
_INDEX = number(0, MAX_DEVICES - 1, f"a device of a server of up to {MAX_DEVICES}")

TABLE = {
    "status": Key(True, wrong_status),
    "version": Key(True, one_of(*VERSIONS)),
    "server_count": Key(True, number(1, 1 << 20, "a number of servers")),
    "server_list": Key(True, None),
    "super_pod_list": Key(False, None),
    "cluster_list": Key(False, None),
}
SERVER = {
    "server_id": Key(True, wrong_server_id),
    "device": Key(True, None),
    "host_nic_ip": Key(False, wrong_host_nic),
    "server_ip": Key(False, wrong_address),
    "host_ip": Key(False, wrong_address),
    "pod_ip": Key(False, wrong_any_address),
    "container_ip": Key(False, wrong_any_address),
}
DEVICE = {
    "device_id": Key(True, _INDEX),
    "device_ip": Key(False, wrong_address),
    "rank_id": Key(True, number(0, (1 << 24) - 1, "a rank")),
    "super_device_id": Key(False, number(0, (1 << 32) - 1, "a super_device_id (SDID)")),
    "device_port": Key(False, _PORT),
    "backup_device_ip": Key(False, wrong_address),
    "backup_device_port": Key(False, _PORT),
    "host_port": Key(False, _PORT),
    "device_logical_id": Key(False, _INDEX),
    "dpu_ip": Key(False, wrong_address),
    "numa_id": Key(False, lambda text: number(0, 4095, "a NUMA node")(text) if text else None),
}
SUPER_POD = {"super_pod_id": Key(True, wrong_name), "server_list": Key(True, None)}
CLUSTER = {
    "cluster_id": Key(True, wrong_name),
    "network_type": Key(True, one_of("ROCE")),
    "az_id": Key(True, wrong_name),
    "region_id": Key(True, wrong_name),
    "server_list": Key(True, None),
}
MEMBER = {"server_id": Key(True, wrong_name)}

ELSEWHERE = {
    "server_group_list": "a table of MindCluster's that holds several jobs; take the server_list of one group",
    "group_list": "the old layout of Atlas 800 (9000) tables; write it again with `msllm ranktable generate`",
}
"""Keys of other files that people bring, and what to do."""
