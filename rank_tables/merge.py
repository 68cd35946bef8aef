"""Tables of single servers (or of several) put together, and ranks numbered anew."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msllm.errors import InputError, Problem
from rank_tables.check import check_text, read_table
from rank_tables.generate import Generated
from rank_tables.shape import ORDER, RANK
from rank_tables.table import Group, RankTable, in_rank_order


def merge(paths: Sequence[Path]) -> Generated:
    """One table of all servers, ranks in blocks by dictionary order of server_id; one table alone is numbered anew.

    Raises:
        InputError: with every fault of every file but its rank ids, and with what does not fit between them.
    """
    problems: list[Problem] = []
    tables: list[tuple[Path, RankTable]] = []
    for path in paths:
        try:
            tables.append((path, read_table(path, accept=(ORDER, RANK))))
        except InputError as error:
            problems += error.problems
    problems += _clashes(tables)
    if problems:
        raise InputError(problems)
    servers = in_rank_order(tuple(server for _, table in tables for server in table.servers))
    pods = _joined(group for _, table in tables for group in table.super_pods)
    clusters = _joined(group for _, table in tables for group in table.clusters)
    table = RankTable(tables[0][1].version, servers, pods, clusters)
    checked = check_text(table.to_text())
    if checked.faults:
        raise InputError([Problem(f"these tables do not fit together: {f.problem(None)}") for f in checked.faults])
    return Generated(table, tuple(note.message for note in checked.notes))


def _clashes(tables: Sequence[tuple[Path, RankTable]]) -> list[Problem]:
    """What two files say differently or both say; file by file, so that the messages can name them."""
    problems: list[Problem] = []
    servers: dict[str, Path] = {}
    ips: dict[str, Path] = {}
    for path, table in tables:
        first, expected = tables[0][0], tables[0][1]
        if table.version != expected.version:
            problems.append(Problem(f"has version {table.version}, but {first} has {expected.version}", path))
        if bool(table.clusters) != bool(expected.clusters):
            problems.append(Problem(f"cluster_list stands in only one of this file and {first}", path))
        for server in table.servers:
            if servers.setdefault(server.server_id, path) != path:
                problems.append(Problem(f"server {server.server_id} is in {servers[server.server_id]} too", path))
                continue
            for device in server.devices:
                if device.device_ip and ips.setdefault(device.device_ip, path) != path:
                    message = (
                        f"device_ip {device.device_ip} of server {server.server_id} is in {ips[device.device_ip]} too"
                    )
                    problems.append(Problem(message, path))
        sizes = {len(server.devices) for server in table.servers}
        usual = {len(server.devices) for server in expected.servers}
        if sizes != usual:
            counts = f"{min(sizes)} devices a server, but {first} has {min(usual)}"
            problems.append(Problem(f"has {counts}; all servers must have as many", path))
    problems += _different_clusters(tables)
    for position, (path, _) in enumerate(tables):
        if path in [other for other, _ in tables[:position]]:
            problems.append(Problem("is given twice", path))
    return problems


def _different_clusters(tables: Sequence[tuple[Path, RankTable]]) -> list[Problem]:
    first: dict[str, tuple[Path, Group]] = {}
    problems = []
    for path, table in tables:
        for cluster in table.clusters:
            other, known = first.setdefault(cluster.name, (path, cluster))
            if known.more != cluster.more:
                problems.append(
                    Problem(f"cluster {cluster.name} has other az_id, region_id or network_type in {other}", path)
                )
    return problems


def _joined(groups: Iterable[Group]) -> tuple[Group, ...]:
    """Groups of one name become one."""
    joined: dict[str, Group] = {}
    for group in groups:
        old = joined.get(group.name)
        ids = (*old.server_ids, *group.server_ids) if old else group.server_ids
        joined[group.name] = Group(group.name, tuple(sorted(ids)), group.more)
    return tuple(joined.values())
