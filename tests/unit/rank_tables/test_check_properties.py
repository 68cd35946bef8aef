"""Whatever generate writes, check accepts; any one field of it that is damaged is caught."""

from __future__ import annotations

import copy
import ipaddress
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rank_table_samples import findings

from rank_tables.check import check_text
from rank_tables.generate import Wanted, generate
from rank_tables.hosts import Host, HostFile
from rank_tables.sources import Collected

FEW = settings(max_examples=40)
"""Tables are large, and their examples take time; each property also held for thousands."""
IPV4 = st.integers(0x0B000000, 0xDFFFFFFF).map(ipaddress.IPv4Address).filter(lambda ip: not ip.is_loopback).map(str)
IPV6 = st.integers(0xFD << 120, (0xFE << 120) - 1).map(ipaddress.IPv6Address).map(str)


@st.composite
def tables(draw: st.DrawFn) -> str:
    """Text of a generated table: 1.0, 1.2 or cross-cluster, 1 to 4 servers of 1 to 16 devices, IPv4 or IPv6."""
    kind = draw(st.sampled_from(["1.0", "1.2", "cross"]))
    servers, devices = draw(st.integers(1, 4)), draw(st.integers(1, 16))
    family = draw(st.sampled_from([IPV4, IPV6]))
    names = draw(st.lists(IPV4, min_size=servers, max_size=servers, unique=True))
    ids = sorted(draw(st.lists(st.integers(0, 15), min_size=devices, max_size=devices, unique=True)))
    count = servers * devices
    ips = iter(draw(st.lists(family, min_size=count, max_size=count, unique=True)))
    sdid = iter(draw(st.lists(st.integers(0, (1 << 32) - 1), min_size=count, max_size=count, unique=True)))
    hosts, said = [], []
    for number, name in enumerate(names):
        group = str(draw(st.integers(0, 1)))
        addresses = {device: next(ips) for device in ids}
        found = Collected(name)
        (found.ipv6 if family is IPV6 else found.ipv4).update(addresses)
        if kind == "1.2":
            found.super_device_ids = {device: str(next(sdid)) for device in ids}
            found.super_pod = group
        cluster = f"cluster_{group}" if kind == "cross" else None
        hosts.append(
            Host(name, name, cluster=cluster, dpu_ips=(f"172.16.0.{number + 1}",) * devices if cluster else None)
        )
        said.append(found)
    clusters = {f"cluster_{n}": {"network_type": "ROCE", "az_id": f"az_{n}", "region_id": "r"} for n in "01"}
    return generate(HostFile(tuple(hosts), clusters), said, Wanted()).table.to_text()


@FEW
@given(tables())
def test_what_generate_writes_check_accepts(text):
    checked = check_text(text)
    assert checked.faults == []
    assert checked.table is not None
    assert checked.table.to_text() == text
    ranks = [device.rank_id for server in checked.table.servers for device in server.devices]
    assert ranks == list(range(len(ranks)))


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of every value below the top."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, item in items for found in ((*path, key), *places(item, (*path, key)))]


WRONG = [
    None,
    0,
    7,
    1.5,
    True,
    [],
    {},
    "",
    " ",
    "x y",
    "nonsense?",
    "-1",
    "00",
    "1e1",
    "999999999999",
    "10.0.0.",
    "127.0.0.1",
]
FREE_TEXT = ("az_id", "region_id", "cluster_id", "super_pod_id")
"""Names that their owner chooses: any text without spaces is one."""


def damages(parent: Any, key: Any, draw: st.DrawFn, alone: tuple[str, ...]) -> bool:
    """Damage the value at `key` of `parent` so that it cannot be right; False where this draw is no damage.

    `alone`: keys that a table of one device may leave out.
    """
    old, how = parent[key], draw(st.sampled_from(["wrong", "key", "delete", "cut"]))
    if how == "key" and isinstance(key, str):
        position = draw(st.integers(0, len(key) - 1))
        parent[key[:position] + key[position + 1 :]] = parent.pop(key)
    elif how == "delete" and isinstance(key, str) and key not in ("host_nic_ip", "numa_id", *alone):
        del parent[key]
    elif how == "cut" and isinstance(old, str) and key.endswith("_ip") and ":" not in old and old != "reserve":
        parent[key] = old.rpartition(".")[0]
    else:
        new = draw(st.sampled_from(WRONG))
        harmless = (
            (key in FREE_TEXT and isinstance(new, str) and new not in ("", " ", "x y"))
            or (key in ("server_id", "server_ip") and new in ("nonsense?", "-1", "00", "1e1", "999999999999"))
            or (key == "numa_id" and new == "")
            or new == old
        )
        if harmless:
            return False
        parent[key] = new
    return True


@FEW
@given(tables(), st.data())
def test_any_one_field_that_is_damaged_is_caught(text, data):
    document = json.loads(text)
    path = data.draw(st.sampled_from(places(document)))
    damaged = copy.deepcopy(document)
    parent = damaged
    for step in path[:-1]:
        parent = parent[step]
    count = sum(len(server["device"]) for server in document["server_list"])
    if damages(parent, path[-1], data.draw, ("device_ip",) if count == 1 else ()):
        found = findings(damaged)
        assert found.faults, f"{path}: {damaged}"


UNIQUE = ("rank_id", "device_id", "device_ip", "super_device_id", "server_id")


@FEW
@given(tables(), st.data())
def test_a_value_copied_from_a_neighbour_is_caught(text, data):
    document = json.loads(text)
    lists = [document["server_list"], *(server["device"] for server in document["server_list"])]
    lists = [entries for entries in lists if len(entries) > 1]
    if not lists:
        return
    entries = data.draw(st.sampled_from(lists))
    here, there = data.draw(st.lists(st.integers(0, len(entries) - 1), min_size=2, max_size=2, unique=True))
    key = data.draw(st.sampled_from([key for key in UNIQUE if key in entries[here]]))
    entries[here][key] = entries[there][key]
    assert findings(document).faults


@FEW
@given(tables(), st.data())
def test_an_entry_doubled_or_taken_out_is_caught(text, data):
    document = json.loads(text)
    lists = [document["server_list"], *(server["device"] for server in document["server_list"])]
    entries = data.draw(st.sampled_from(lists))
    position = data.draw(st.integers(0, len(entries) - 1))
    if data.draw(st.booleans()):
        entries.append(copy.deepcopy(entries[position]))
    elif len(document["server_list"]) == 1 and position == len(entries) - 1 > 0:
        return  # one server with a device less is a table of its own
    else:
        del entries[position]
    assert findings(document).faults


@FEW
@given(st.recursive(st.none() | st.text(max_size=5) | st.integers(), lambda inner: st.lists(inner, max_size=3), max_leaves=5),
       tables(), st.data())  # fmt: skip
def test_any_value_in_any_place_is_judged_without_an_exception(value, text, data):
    document = json.loads(text)
    path = data.draw(st.sampled_from(places(document)))
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value
    findings(document)
