"""What must fit together in a rank table: unique ids, whole numbering, equal servers, groups, one version."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Sequence

from rank_tables import fields
from rank_tables.shape import ORDER, RANK, Entry, Finding, GroupEntry, ServerEntry, Shape

SHOWN = 8
"""Names listed in a message before the rest is counted."""
ONE_OR_ALL = ("device_ip", "super_device_id", "device_port", "backup_device_ip", "backup_device_port", "host_port",
              "device_logical_id", "dpu_ip", "numa_id")  # fmt: skip
SERVER_ONE_OR_ALL = ("host_nic_ip", "server_ip", "host_ip", "pod_ip", "container_ip")


def check_relations(shape: Shape) -> None:
    """Add what is wrong between the entries of `shape`; values that are wrong by themselves are left out."""
    servers = shape.servers
    devices = [device for server in servers for device in server.devices]
    _unique(shape, servers, "server_id")
    for key in ("server_ip", "host_ip"):
        _unique(shape, servers, key)
    _unique(shape, devices, "device_ip")
    for server in servers:
        for key in ("device_id", "device_logical_id"):
            _unique(shape, server.devices, key)
    _partly_there(shape, devices, ONE_OR_ALL)
    _partly_there(shape, servers, SERVER_ONE_OR_ALL)
    _families(shape, devices)
    _no_addresses(shape, devices)
    _counts(shape)
    _ranks(shape, devices)
    _version(shape, devices)
    _groups(shape, shape.super_pods, "super_pod_list", "super_pod_id")
    _groups(shape, shape.clusters, "cluster_list", "cluster_id")
    _super_device_ids(shape)
    note = surprising_order([s.values["server_id"] for s in servers if "server_id" in s.values])
    if note:
        shape.notes.append(Finding("note", note))


def surprising_order(server_ids: Sequence[str]) -> str | None:
    """Say so where servers sorted as text do not come in the order of their addresses."""
    addresses = []
    for server_id in server_ids:
        try:
            addresses.append((ipaddress.ip_address(server_id), server_id))
        except ValueError:
            return None
    if len({address.version for address, _ in addresses}) > 1:
        return None
    by_number = [name for _, name in sorted(addresses)]  # type: ignore[type-var]
    by_text = sorted(server_ids)
    for first, second in zip(by_text, by_text[1:]):
        if by_number.index(first) > by_number.index(second):
            return (
                f'rank ids follow the dictionary order of server_id, in which "{first}" comes before "{second}": '
                f"the ranks of {first} are the lower ones"
            )
    return None


def _listed(names: Iterable[object]) -> str:
    all_names = [str(name) for name in names]
    more = f" and {len(all_names) - SHOWN} more" if len(all_names) > SHOWN else ""
    return ", ".join(all_names[:SHOWN]) + more


def _unique(shape: Shape, entries: Sequence[Entry], key: str) -> None:
    first: dict[str, Entry] = {}
    for entry in entries:
        value = entry.values.get(key)
        if value is None:
            continue
        same = first.setdefault(fields.same_address(value), entry)
        if same is not entry:
            message = f"{key} {value} is that of {same.path} too (line {same.line_of(key)})"
            shape.fault("duplicate", message, entry.path, entry.line_of(key))


def _partly_there(shape: Shape, entries: Sequence[Entry], keys: Iterable[str]) -> None:
    """An optional key stands in all entries of a kind or in none."""
    for key in keys:
        without = [entry for entry in entries if key not in entry.keys]
        if without and len(without) < len(entries):
            others = f", as from {len(without) - 1} more" if len(without) > 1 else ""
            message = f"{key} is missing here{others}; {len(entries) - len(without)} of {len(entries)} have it"
            shape.fault("mixed", message, without[0].path, without[0].line)


def _families(shape: Shape, devices: Sequence[Entry]) -> None:
    """IPv4 or IPv6, not both."""
    versions: dict[int, list[Entry]] = {}
    for device in devices:
        if "device_ip" in device.values:
            versions.setdefault(ipaddress.ip_address(device.values["device_ip"]).version, []).append(device)
    if len(versions) == 2:
        rarer, usual = sorted(versions, key=lambda version: len(versions[version]))
        device = versions[rarer][0]
        message = (
            f"device_ip {device.values['device_ip']} is IPv{rarer}, but {len(versions[usual])} devices have IPv{usual}"
        )
        shape.fault("mixed", message, device.path, device.line_of("device_ip"))


def _no_addresses(shape: Shape, devices: Sequence[Entry]) -> None:
    """CANN asks for device_ip where there is more than one server."""
    if devices and not any("device_ip" in device.keys for device in devices):
        if len(shape.servers) > 1:
            message = "no device has a device_ip: with more than one server every device needs it"
            shape.fault("key", message, "server_list", devices[0].line)
        else:
            note = "no device has a device_ip: enough for one server, but not for a table of several"
            shape.notes.append(Finding("note", note))


def _counts(shape: Shape) -> None:
    servers, given = shape.servers, shape.top.values.get("server_count")
    if given is not None and servers and int(given) != len(servers):
        message = f"server_count is {given}, but server_list holds {len(servers)}"
        shape.fault("count", message, "", shape.top.line_of("server_count"))
    sizes = Counter(len(server.devices) for server in servers)
    if len(sizes) > 1:
        usual = max(sizes, key=lambda size: (sizes[size], size))
        for server in servers:
            if len(server.devices) != usual:
                message = (
                    f"server {server.name} has {len(server.devices)} devices, but {sizes[usual]} of {len(servers)} "
                )
                message += f"servers have {usual}; all must have as many"
                shape.fault("count", message, server.path, server.line)
    for server in servers:
        if len(server.devices) > fields.MAX_DEVICES:
            message = (
                f"server {server.name} has {len(server.devices)} devices; a server has at most {fields.MAX_DEVICES}"
            )
            shape.fault("count", message, server.path, server.line)


def _ranks(shape: Shape, devices: Sequence[Entry]) -> None:
    """rank_id is 0 to n-1, each once, in blocks by dictionary order of server_id."""
    count = len(devices)
    taken: dict[int, Entry] = {}
    for device in devices:
        if "rank_id" not in device.values:
            continue
        rank, line = int(device.values["rank_id"]), device.line_of("rank_id")
        same = taken.setdefault(rank, device)
        if same is not device:
            message = f"rank_id {rank} is that of {same.path} too (line {same.line_of('rank_id')})"
            shape.fault(RANK, message, device.path, line)
        elif rank >= count:
            message = f"rank_id {rank} is too large: {count} devices have the ranks 0 to {count - 1}"
            shape.fault(RANK, message, device.path, line)
    known = all("rank_id" in device.values for device in devices)
    missing = [rank for rank in range(count) if rank not in taken]
    if known and missing:
        message = f"no device has rank_id {_listed(missing)}: {count} devices need the ranks 0 to {count - 1}"
        shape.fault(RANK, message, "server_list", shape.servers[0].line)
    elif known and all("server_id" in server.values for server in shape.servers):
        _rank_order(shape)


def _rank_order(shape: Shape) -> None:
    start, by_text = 0, sorted(shape.servers, key=lambda server: server.values["server_id"])
    for server in by_text:
        ranks = [int(device.values["rank_id"]) for device in server.devices]
        expected = list(range(start, start + len(ranks)))
        start += len(ranks)
        if sorted(ranks) != expected:
            message = (
                f"server {server.name} holds the ranks {_listed(sorted(ranks))}; by dictionary order of server_id "
            )
            message += f"its ranks are {expected[0]} to {expected[-1]}"
            shape.fault(ORDER, message, server.path, server.line)
        elif _by_device(server) != expected:
            note = f"the ranks of server {server.name} do not rise with device_id"
            shape.notes.append(Finding("note", note, server.path, server.line))


def _by_device(server: ServerEntry) -> list[int]:
    pairs = [(int(device.values.get("device_id", 0)), int(device.values["rank_id"])) for device in server.devices]
    return [rank for _, rank in sorted(pairs)]


def _version(shape: Shape, devices: Sequence[Entry]) -> None:
    """Keys of 1.2 (A3 super pods) and of cross-cluster tables stand in those only, and there all of them do."""
    version, top = shape.top.values.get("version"), shape.top
    line = top.line_of("version")
    with_sdid = [device for device in devices if "super_device_id" in device.keys]
    if version == "1.0" and ("super_pod_list" in top.keys or with_sdid):
        what = "super_pod_list" if "super_pod_list" in top.keys else "super_device_id"
        shape.fault("mixed", f"version is 1.0, but the table holds {what}, which version 1.2 (A3) has", "", line)
    if version == "1.2":
        if "super_pod_list" not in top.keys:
            shape.fault("mixed", "version is 1.2 (A3), which needs super_pod_list; there is none", "", line)
        if not with_sdid:
            message = "version is 1.2 (A3), in which every device has a super_device_id; none has"
            shape.fault("mixed", message, "", line)
        if "cluster_list" in top.keys:
            shape.fault("mixed", "version is 1.2 (A3), but cluster_list belongs to version 1.0", "", line)
    cross = "cluster_list" in top.keys
    for kind, entries, keys in (("device", devices, ("dpu_ip", "numa_id")), ("server", shape.servers, ("server_ip",))):
        for key in keys:
            there = any(key in entry.keys for entry in entries)
            if cross and not there:
                message = f"a table with cluster_list needs {key} in every {kind}; there is none"
                shape.fault("mixed", message, "cluster_list", top.line_of("cluster_list"))
            elif not cross and there and kind == "device":
                message = f"{key} belongs to tables with cluster_list; there is none"
                shape.fault("mixed", message, entries[0].path, entries[0].line_of(key))


def _groups(shape: Shape, groups: Sequence[GroupEntry], where: str, key: str) -> None:
    """Every server is in one group, and every group is of servers that exist."""
    if where not in shape.top.keys:
        return
    _unique(shape, groups, key)
    members = [member for group in groups for member in group.members]
    _unique(shape, members, "server_id")
    known = {server.values["server_id"] for server in shape.servers if "server_id" in server.values}
    grouped = {member.values.get("server_id") for member in members}
    if len(known) == len(shape.servers):
        for member in members:
            name = member.values.get("server_id")
            if name is not None and name not in known:
                message = f"server {name} is not in the table's server_list"
                shape.fault("group", message, member.path, member.line_of("server_id"))
    for server in shape.servers:
        if groups and "server_id" in server.values and server.values["server_id"] not in grouped:
            shape.fault("group", f"server {server.name} is missing in {where}", server.path, server.line)


def _super_device_ids(shape: Shape) -> None:
    """super_device_id is unique inside a super pod; given to every card alike it stops HCCL."""
    pod_of = {
        member.values.get("server_id"): group.values.get("super_pod_id")
        for group in shape.super_pods
        for member in group.members
    }
    holders: dict[tuple[str | None, int], list[Entry]] = {}
    for server in shape.servers:
        for device in server.devices:
            if "super_device_id" in device.values:
                pod = pod_of.get(server.values.get("server_id"))
                holders.setdefault((pod, int(device.values["super_device_id"])), []).append(device)
    for (pod, sdid), devices in holders.items():
        if len(devices) > 1:
            inside = f" of super pod {pod}" if pod is not None else ""
            message = f"super_device_id {sdid} is shared by {len(devices)} devices{inside}: "
            message += f"{_listed(device.path for device in devices)}; read each with "
            message += "`npu-smi info -t spod-info -i CARD -c CHIP`"
            shape.fault("duplicate", message, devices[1].path, devices[1].line_of("super_device_id"))
