"""A table held against what servers say now: it goes stale when cards, addresses or servers are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from msllm.errors import InputError
from rank_tables.fields import same_address
from rank_tables.generate import collected_in, name_of
from rank_tables.hosts import Host
from rank_tables.shape import Finding
from rank_tables.sources import HCCN_CONF, Collected, collect_here, local_address, read_collected
from rank_tables.table import RankTable, Server


def stale(
    table: RankTable, source: str, server_id: str | None = None, hccn_conf: Path | None = None
) -> tuple[list[Finding], list[str]]:
    """Compare a table's addresses with their source.

    Args:
        table: the table.
        source: `hccn`, this server's hccn_tool or hccn.conf; or a file with their output; or a folder of such files, one a
            server.
        server_id: which server of the table is meant; None: the only one, the one of this address, or the file's name.
        hccn_conf: with `hccn`, a file to read instead of asking hccn_tool.

    Returns:
        The faults, and the server_ids that were compared.

    Raises:
        InputError: the source cannot be read, or it is unclear of which server it is.
    """
    path = Path(source)
    if source == "hccn":
        said = read_collected(hccn_conf) if hccn_conf else collect_here(HCCN_CONF)
        pairs = [(_server(table, said, server_id, None), said)]
    elif path.is_dir():
        hosts = [Host(server.server_id, server.server_id) for server in table.servers]
        pairs = list(zip(table.servers, collected_in(path, hosts)[1]))
    else:
        said = read_collected(path)
        pairs = [(_server(table, said, server_id, name_of(path)), said)]
    return [finding for server, said in pairs for finding in compare_server(table, server, said)], [
        server.server_id for server, _ in pairs
    ]


def _server(table: RankTable, said: Collected, server_id: str | None, stem: str | None) -> Server:
    names = {server.server_id: server for server in table.servers}
    if server_id is not None:
        if server_id not in names:
            raise InputError(f"--server-ip {server_id} is not in the rank table; it has {', '.join(names)}")
        return names[server_id]
    if stem in names:
        return names[stem]
    if len(table.servers) == 1:
        return table.servers[0]
    if stem is None and (here := _this_server(table.servers)):
        return here
    raise InputError(f"of which server is {said.source}? give --server-ip with one of {', '.join(names)}")


def _this_server(servers: Sequence[Server]) -> Server | None:
    try:
        address = local_address()
    except InputError:
        return None
    return server_at(servers, [address])


def server_at(servers: Sequence[Server], addresses: Sequence[str]) -> Server | None:
    """The first server that has one of these addresses, as server_id, server_ip or host_ip."""
    for server in servers:
        if {server.server_id, server.more.get("server_ip"), server.more.get("host_ip")} & set(addresses):
            return server
    return None


def compare_server(table: RankTable, server: Server, said: Collected) -> list[Finding]:
    """Where a server's entries differ from what it says now."""
    entry = f"server {server.server_id}"
    found = []
    for device in server.devices:
        known = said.device_ips(ipv6=":" in device.device_ip)
        now = known.get(device.device_id)
        what = f"device {device.device_id} (rank {device.rank_id})"
        if now is None:
            message = f"{what} is in the table, but {said.source} knows no such device"
            found.append(Finding("stale", message, entry))
        elif device.device_ip and same_address(now) != same_address(device.device_ip):
            message = f"{what} has device_ip {device.device_ip} in the table, but {said.source} says {now}"
            found.append(Finding("stale", message, entry))
        sdid, sdid_now = device.more.get("super_device_id"), said.super_device_ids.get(device.device_id)
        if sdid is not None and sdid_now is not None and sdid != sdid_now:
            message = f"{what} has super_device_id {sdid} in the table, but {said.source} says {sdid_now}"
            found.append(Finding("stale", message, entry))
    pod = table.group_of(server.server_id) if table.super_pods else None
    # A name of one's own may stand for a part of a pod; only a number is the one that npu-smi prints.
    if pod is not None and pod.isdigit() and said.super_pod not in (None, pod):
        found.append(Finding("stale", f"super_pod_id is {pod}, but {said.source} says {said.super_pod}", entry))
    return found
