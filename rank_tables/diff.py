"""What differs between two rank tables: by rank, by server, by device."""

from __future__ import annotations

from dataclasses import dataclass

from rank_tables.table import Group, RankTable


@dataclass(frozen=True)
class Difference:
    """One difference."""

    kind: str
    """table, group, server, device or rank."""
    what: str
    """What it is about, as: server 10.0.0.1, or rank 3."""
    old: str | None
    """Value in the first table; None: there is none."""
    new: str | None

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.what}: added, {self.new}" if self.new else f"{self.what}: added"
        if self.new is None:
            return f"{self.what}: removed, was {self.old}" if self.old else f"{self.what}: removed"
        return f"{self.what}: {self.old} -> {self.new}"


def diff(old: RankTable, new: RankTable) -> list[Difference]:
    """All differences; the order of servers and devices in the file is none."""
    found = []
    for name, first, second in (("version", old.version, new.version), ("ranks", str(old.size), str(new.size))):
        if first != second:
            found.append(Difference("table", name, first, second))
    found += _groups("super pod", old.super_pods, new.super_pods)
    found += _groups("cluster", old.clusters, new.clusters)
    found += _servers(old, new)
    found += _devices(old, new)
    found += _ranks(old, new)
    return found


def _groups(what: str, old: tuple[Group, ...], new: tuple[Group, ...]) -> list[Difference]:
    def text(groups: tuple[Group, ...]) -> dict[str, str]:
        described = {}
        for group in groups:
            more = "".join(f", {key} {value}" for key, value in sorted(group.more.items()))
            described[group.name] = f"servers {', '.join(sorted(group.server_ids))}{more}"
        return described

    return _compare("group", what, text(old), text(new))


def _compare(kind: str, what: str, old: dict[str, str], new: dict[str, str]) -> list[Difference]:
    names = list(dict.fromkeys([*old, *new]))
    return [
        Difference(kind, f"{what} {name}", old.get(name), new.get(name))
        for name in names
        if old.get(name) != new.get(name)
    ]


def _servers(old: RankTable, new: RankTable) -> list[Difference]:
    first = {server.server_id: server for server in old.servers}
    second = {server.server_id: server for server in new.servers}
    found = []
    for name in dict.fromkeys([*first, *second]):
        if name not in first or name not in second:
            there = first.get(name) or second[name]
            count = f"{len(there.devices)} devices"
            found.append(Difference("server", f"server {name}", *((count, None) if name in first else (None, count))))
        else:
            found += _compare("server", f"server {name}:", dict(first[name].more), dict(second[name].more))
    return found


def _devices(old: RankTable, new: RankTable) -> list[Difference]:
    """Devices of servers that both tables have."""

    def described(table: RankTable) -> dict[tuple[str, int], dict[str, str]]:
        return {
            (server.server_id, device.device_id): {"device_ip": device.device_ip, **device.more}
            for server, device in table.places()
        }

    first, second = described(old), described(new)
    both = {server.server_id for server in old.servers} & {server.server_id for server in new.servers}
    found = []
    for server_id, device_id in dict.fromkeys([*first, *second]):
        if server_id not in both:
            continue
        what = f"device {device_id} of {server_id}"
        before, after = first.get((server_id, device_id)), second.get((server_id, device_id))
        if before is None or after is None:
            ip = (before or after or {})["device_ip"]
            found.append(Difference("device", what, *((None, ip) if before is None else (ip, None))))
        else:
            found += _compare("device", f"{what}:", before, after)
    return found


def _ranks(old: RankTable, new: RankTable) -> list[Difference]:
    def places(table: RankTable) -> dict[str, str]:
        return {str(d.rank_id): f"device {d.device_id} of {s.server_id}" for s, d in table.places()}

    return _compare("rank", "rank", places(old), places(new))
