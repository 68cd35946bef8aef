"""From listed hosts and collected addresses to a rank table that `check` accepts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msllm.errors import InputError, Problem
from msllm.files import write_atomic
from rank_tables.check import check_text
from rank_tables.fields import MAX_DEVICES
from rank_tables.hosts import Host, HostFile
from rank_tables.sources import Collected, read_collected
from rank_tables.table import Device, Group, RankTable, Server, in_rank_order


@dataclass(frozen=True)
class Wanted:
    """What the table is to be."""

    version: str | None = None
    """None: 1.2 where super_device_ids are known, else 1.0."""
    visible_devices: tuple[int, ...] | None = None
    """Physical ids, the same on every host that names none; None: the first ones."""
    device_ips: tuple[str, ...] | None = None
    """Addresses of all devices, host after host; None: from the host file or collected."""
    super_pod: str | None = None
    """Super pod of hosts that name none."""
    ipv6: bool = False
    """Take the IPv6 addresses where a server has both."""


@dataclass(frozen=True)
class Generated:
    """A table and what is worth knowing about it."""

    table: RankTable
    notes: tuple[str, ...]


def collected_in(folder: Path, hosts: Sequence[Host] | None) -> tuple[list[Host], list[Collected]]:
    """The files of a folder, one a server, named by its address or host name: `10.0.0.1.txt`, `node1.conf`.

    Without `hosts` the names are the addresses. InputError with every file that is missing or holds no address.
    """
    if not folder.is_dir():
        raise InputError(Problem("is no folder; expected one with a file a server, as 10.0.0.1.txt", folder))
    files = {
        name_of(file): file for file in sorted(folder.iterdir()) if file.is_file() and not file.name.startswith(".")
    }
    if not files:
        raise InputError(Problem("holds no file; expected one a server, as 10.0.0.1.txt", folder))
    listed = list(hosts) if hosts is not None else [Host(name, name, file=file) for name, file in files.items()]
    found, problems = [], []
    for host in listed:
        file = files.get(host.name) or files.get(host.server_id)
        if file is None:
            message = f"there is no file {host.name}.txt or {host.server_id}.txt in {folder}"
            problems.append(host.problem(message))
            continue
        try:
            found.append(read_collected(file))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    return listed, found


def name_of(file: Path) -> str:
    """The server that a collected file is named by."""
    return file.stem if file.suffix in (".txt", ".conf", ".log") else file.name


def generate(listed: HostFile, collected: Sequence[Collected] | None, wanted: Wanted) -> Generated:
    """Build a table.

    Args:
        listed: the servers.
        collected: what each of them said, in the same order; None where all addresses are listed.
        wanted: version and devices.

    Raises:
        InputError: with everything that is missing, does not fit or would be refused by `check`.
    """
    problems: list[Problem] = []
    hosts = [replace(host, super_pod=host.super_pod or wanted.super_pod) for host in listed.hosts]
    if wanted.device_ips is not None:
        hosts = _deal(hosts, wanted, problems)
    servers, pods = [], {}
    for position, host in enumerate([] if problems else hosts):
        said = collected[position] if collected is not None else None
        servers.append(_server(host, said, wanted, problems))
        pod = host.super_pod or (said.super_pod if said else None)
        if pod is not None:
            pods[host.server_id] = pod
    with_sdid = any("super_device_id" in device.more for server in servers for device in server.devices)
    version = wanted.version or ("1.2" if with_sdid else "1.0")
    if version == "1.2":
        problems += [
            host.problem("which super pod? give --super-pod, or super_pod in a YAML host file")
            for host in hosts
            if host.server_id not in pods
        ]
    if problems:
        raise InputError(problems)
    table = _table(servers, hosts, pods, listed.clusters, version)
    checked = check_text(table.to_text())
    if checked.faults:
        raise InputError([Problem(f"no table can be made of this: {f.problem(None)}") for f in checked.faults])
    return Generated(table, tuple(note.message for note in checked.notes))


def _deal(hosts: Sequence[Host], wanted: Wanted, problems: list[Problem]) -> list[Host]:
    """Give each host its share of --device-ips, in the order of the host file."""
    assert wanted.device_ips is not None
    usual = wanted.visible_devices and len(wanted.visible_devices)
    slots = [host.slots or (host.device_ids and len(host.device_ids)) or usual for host in hosts]
    if len(hosts) == 1 and slots[0] is None:
        slots = [len(wanted.device_ips)]
    problems += [
        h.problem("give its slots, as --device-ips has to be dealt out") for h, s in zip(hosts, slots) if not s
    ]
    counts = [count or 0 for count in slots]
    if not problems and sum(counts) != len(wanted.device_ips):
        per_host = f"{len(hosts)} host{'s' * (len(hosts) > 1)}"
        problems.append(
            Problem(f"--device-ips gives {len(wanted.device_ips)} addresses, but {per_host} have {sum(counts)} devices")
        )
    dealt, start = [], 0
    for host, count in zip(hosts, counts):
        if host.device_ips is not None:
            problems.append(
                host.problem("has device_ips in the host file; give them there or with --device-ips, not both")
            )
        dealt.append(replace(host, slots=count, device_ips=wanted.device_ips[start : start + count]))
        start += count
    return dealt


def _server(host: Host, said: Collected | None, wanted: Wanted, problems: list[Problem]) -> Server:
    """One server with its devices; what is missing goes to `problems`."""
    ips = _addresses(host, said, wanted, problems)
    devices = []
    for position, (number, ip) in enumerate(ips.items()):
        more = {}
        sdid = said.super_device_ids.get(number) if said else None
        if host.super_device_ids is not None:
            sdid = _at(host, "super_device_ids", host.super_device_ids, position, len(ips), problems)
        if sdid is not None and wanted.version != "1.0":
            more["super_device_id"] = sdid
        for key, values in (("dpu_ip", host.dpu_ips), ("numa_id", host.numa_ids)):
            if values is not None:
                more[key] = _at(host, f"{key}s", values, position, len(ips), problems)
            elif host.cluster is not None and key == "numa_id":
                more[key] = ""
        devices.append(Device(number, ip, position, more))
    server_more = {"server_ip": host.server_id} if host.cluster is not None else {}
    return Server(host.server_id, tuple(devices), {**server_more, "host_nic_ip": "reserve"})


def _at(host: Host, key: str, values: Sequence[str], position: int, count: int, problems: list[Problem]) -> str:
    if len(values) != count and position == 0:
        problems.append(host.problem(f"{key} has {len(values)} values for {count} devices"))
    return values[position] if position < len(values) else ""


def _addresses(host: Host, said: Collected | None, wanted: Wanted, problems: list[Problem]) -> dict[int, str]:
    """device_id -> address of the devices that the job uses."""
    chosen = host.device_ids or wanted.visible_devices
    if chosen is not None and len(set(chosen)) < len(chosen):
        problems.append(host.problem(f"a device is chosen twice: {','.join(str(number) for number in chosen)}"))
    if chosen is not None and host.slots is not None and len(chosen) < host.slots:
        problems.append(host.problem(f"slots is {host.slots}, but only {len(chosen)} devices are chosen"))
    if host.device_ips is not None:
        count = host.slots or len(host.device_ips)
        if len(host.device_ips) != count:
            problems.append(host.problem(f"slots is {count}, but there are {len(host.device_ips)} device_ips"))
        if chosen is not None and len(chosen) != count:
            problems.append(host.problem(f"{len(chosen)} devices are chosen, but there are {count} device_ips"))
        if count > MAX_DEVICES:
            problems.append(host.problem(f"{count} device_ips; a server has at most {MAX_DEVICES} devices"))
        return dict(zip(chosen or range(count), host.device_ips))
    if said is None:
        problems.append(host.problem("where are its device addresses? give --device-ips, --collected or --ssh"))
        return {}
    known = said.device_ips(wanted.ipv6)
    family = " IPv6" if wanted.ipv6 else ""
    numbers = list(chosen or sorted(known))[: host.slots]
    for number in numbers:
        if number not in known:
            problems.append(
                host.problem(f"{said.source} has no{family} address of device {number}; it has {sorted(known)}")
            )
    if host.slots is not None and len(numbers) < host.slots:
        problems.append(
            host.problem(f"slots is {host.slots}, but {said.source} has{family} addresses of {len(numbers)} devices")
        )
    return {number: known.get(number, "") for number in numbers}


def _table(
    servers: Sequence[Server],
    hosts: Sequence[Host],
    pods: Mapping[str, str],
    clusters: Mapping[str, Mapping[str, str]],
    version: str,
) -> RankTable:
    ordered = in_rank_order(tuple(servers))
    cluster_of = {host.server_id: host.cluster for host in hosts if host.cluster is not None}
    super_pods = _groups(ordered, pods, {}) if version == "1.2" else ()
    return RankTable(version, ordered, super_pods, _groups(ordered, cluster_of, clusters))


def _groups(
    servers: Sequence[Server], group_of: Mapping[str, str], more: Mapping[str, Mapping[str, str]]
) -> tuple[Group, ...]:
    """Groups in the order of their first server."""
    members: dict[str, list[str]] = {}
    for server in servers:
        if server.server_id in group_of:
            members.setdefault(group_of[server.server_id], []).append(server.server_id)
    return tuple(Group(name, tuple(ids), more.get(name, {})) for name, ids in members.items())


def require_folder(output: Path) -> None:
    """InputError where the folder that a file is to be written to does not exist."""
    if not output.parent.is_dir():
        raise InputError(Problem(f"the folder {output.parent} does not exist; make it, or write elsewhere", output))


def write_table(table: RankTable, output: Path, overwrite: bool) -> None:
    """Write a table whole or not at all; InputError where another file is there and may not be replaced."""
    text = table.to_text()
    require_folder(output)
    if output.is_dir():
        raise InputError(Problem("is a folder; give the name of a file", output))
    if output.exists() and not overwrite and output.read_text(encoding="utf-8", errors="replace") != text:
        raise InputError(Problem("exists and differs; give another --output, or --overwrite to replace it", output))
    write_atomic(output, text)
