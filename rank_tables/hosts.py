"""The servers of a job as a user lists them: one a line (`host ip slots`), or the values of a YAML file."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msllm.errors import InputError, Problem
from rank_tables.fields import MAX_DEVICES, wrong_server_id

_LINE_FORMS = "`host ip slots`, as: node1 10.0.0.1 8"
_SLOTS = re.compile(r"(?:slots=)?([0-9]{1,4})\Z")


@dataclass(frozen=True)
class Host:
    """One server that is to be in a table."""

    name: str
    """What ssh is given, and what a collected file is named by."""
    server_id: str
    """Its address."""
    slots: int | None = None
    """Devices that the job uses; None: all that are found."""
    device_ids: tuple[int, ...] | None = None
    """Which of its devices; None: the first ones."""
    device_ips: tuple[str, ...] | None = None
    """Their addresses; None: they are collected."""
    super_device_ids: tuple[str, ...] | None = None
    super_pod: str | None = None
    cluster: str | None = None
    dpu_ips: tuple[str, ...] | None = None
    numa_ids: tuple[str, ...] | None = None
    file: Path | None = None
    line: int | None = None

    def problem(self, message: str) -> Problem:
        """A problem that stands where the host is listed."""
        return Problem(f"host {self.name}: {message}", self.file, self.line)


@dataclass(frozen=True)
class HostFile:
    """All servers, and the clusters they are in: cluster_id -> network_type, az_id, region_id."""

    hosts: tuple[Host, ...]
    clusters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


def expand_ips(text: str) -> tuple[str, ...]:
    """The addresses of `192.168.1.8-11,192.168.2.8,fd00::1-fd00::4`; ValueError with the reason where it is no such list."""
    found: list[str] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        try:
            start = ipaddress.ip_address(first.strip())
            if not dash:
                found.append(str(start))
                continue
            if last.strip().isdecimal() and start.version == 4:
                last = f"{first.strip().rpartition('.')[0]}.{last.strip()}"
            end = ipaddress.ip_address(last.strip())
        except ValueError as error:
            raise ValueError(
                f"{part.strip()!r} is neither an IP address nor a range such as 192.168.1.8-15 ({error})"
            ) from None
        if start.version != end.version or int(end) < int(start) or int(end) - int(start) >= 1 << 16:
            raise ValueError(f"{part.strip()!r} is no range from a lower to a higher address")
        found += [str(start + offset) for offset in range(int(end) - int(start) + 1)]
    return tuple(found)


def parse_plain(text: str, path: Path) -> HostFile:
    """Read lines `host ip slots`; slots may be left out or written `slots=8`, and `ip slots=8` names the host by its address.

    Raises:
        InputError: with every line that is something else.
    """
    hosts, problems = [], []
    for line, raw in enumerate(text.splitlines(), start=1):
        words = raw.partition("#")[0].split()
        if not words:
            continue
        slots = _SLOTS.match(words[-1]) if len(words) > 1 else None
        names = words[:-1] if slots else words
        if len(names) > 2:
            problems.append(Problem(f"expected {_LINE_FORMS}, got {raw.strip()!r}", path, line))
            continue
        count = int(slots[1]) if slots else None
        problems += _wrong_host(names[-1], count, path, line)
        hosts.append(Host(names[0], names[-1], count, file=path, line=line))
    if not hosts and not problems:
        problems.append(Problem(f"lists no host; expected lines {_LINE_FORMS}", path))
    if problems:
        raise InputError(problems)
    return HostFile(tuple(hosts))


def _wrong_host(server_id: str, slots: int | None, path: Path, line: int | None) -> list[Problem]:
    problems = []
    wrong = wrong_server_id(server_id)
    if wrong:
        problems.append(Problem(f"the host's address {wrong}", path, line))
    if slots is not None and not 1 <= slots <= MAX_DEVICES:
        problems.append(Problem(f"slots is {slots}; a server has 1 to {MAX_DEVICES} devices", path, line))
    return problems


_TOP_KEYS = ("hosts", "clusters")
_CLUSTER_KEYS = ("network_type", "az_id", "region_id")
_LISTS = ("device_ids", "device_ips", "super_device_ids", "dpu_ips", "numa_ids")
_HOST_KEYS = ("host", "ip", "slots", "super_pod", "cluster", *_LISTS)


def from_mapping(values: Mapping[str, Any], lines: Mapping[tuple[str, ...], int], path: Path) -> HostFile:
    """The hosts of a YAML file's values.

    Args:
        values: `hosts:`, a list of mappings with ip and, where wanted, host, slots, device_ids, device_ips, super_device_ids,
            super_pod, cluster, dpu_ips, numa_ids; `clusters:`, cluster_id -> network_type, az_id, region_id.
        lines: path of each key -> its line.
        path: the file, for messages.

    Raises:
        InputError: with every fault.
    """
    problems: list[Problem] = []
    _known(values, _TOP_KEYS, (), lines, path, problems)
    listed = values.get("hosts")
    if not isinstance(listed, list) or not listed:
        problems.append(
            Problem("hosts: must be a list such as [{ip: 10.0.0.1, slots: 8}]", path, lines.get(("hosts",)))
        )
        listed = []
    hosts = []
    for position, item in enumerate(listed):
        here = ("hosts", str(position))
        if not isinstance(item, dict):
            problems.append(
                Problem(f"a host must hold keys such as ip: and slots:, not {item!r}", path, lines.get(here))
            )
            continue
        _known(item, _HOST_KEYS, here, lines, path, problems)
        hosts.append(_host(item, path, lines.get(here), problems))
    clusters = _clusters(values.get("clusters"), lines, path, problems)
    for host in hosts:
        if host.cluster is not None and host.cluster not in clusters:
            problems.append(host.problem(f"cluster {host.cluster} is not in clusters:"))
    if problems:
        raise InputError(problems)
    return HostFile(tuple(hosts), clusters)


def _known(
    values: Mapping[str, Any],
    legal: tuple[str, ...],
    where: tuple[str, ...],
    lines: Mapping[tuple[str, ...], int],
    path: Path,
    problems: list[Problem],
) -> None:
    for key in values:
        if key not in legal:
            near = difflib.get_close_matches(key, legal, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(legal)}"
            problems.append(Problem(f"unknown key {key}; {hint}", path, lines.get((*where, key))))


def _host(item: Mapping[str, Any], path: Path, line: int | None, problems: list[Problem]) -> Host:
    def text(key: str) -> str | None:
        value = item.get(key)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        problems.append(Problem(f"{key} must be text, not {value!r}", path, line))
        return None

    def texts(key: str) -> tuple[str, ...] | None:
        value = item.get(key)
        if value is None:
            return None
        if isinstance(value, str) and key.endswith("_ips"):
            try:
                return expand_ips(value)
            except ValueError as error:
                problems.append(Problem(f"{key}: {error}", path, line))
                return None
        if (
            isinstance(value, list)
            and value
            and all(isinstance(v, (str, int)) and not isinstance(v, bool) for v in value)
        ):
            return tuple(str(v) for v in value)
        problems.append(Problem(f"{key} must be a list, not {value!r}", path, line))
        return None

    server_id, slots, ids = text("ip"), item.get("slots"), texts("device_ids")
    if server_id is None:
        problems.append(Problem("ip is missing: the host's address", path, line))
        server_id = text("host") or "?"
    elif slots is not None and (not isinstance(slots, int) or isinstance(slots, bool)):
        problems.append(Problem(f"slots must be a whole number, not {slots!r}", path, line))
        slots = None
    else:
        problems += _wrong_host(server_id, slots, path, line)
    if ids is not None and not all(re.fullmatch("[0-9]{1,2}", number) for number in ids):
        problems.append(Problem(f"device_ids must be numbers from 0 to {MAX_DEVICES - 1}, not {list(ids)}", path, line))
        ids = None
    return Host(
        text("host") or server_id,
        server_id,
        slots if isinstance(slots, int) else None,
        tuple(int(number) for number in ids) if ids else None,
        texts("device_ips"),
        texts("super_device_ids"),
        text("super_pod"),
        text("cluster"),
        texts("dpu_ips"),
        texts("numa_ids"),
        path,
        line,
    )


def _clusters(
    value: Any, lines: Mapping[tuple[str, ...], int], path: Path, problems: list[Problem]
) -> dict[str, dict[str, str]]:
    if value is None:
        return {}
    clusters: dict[str, dict[str, str]] = {}
    if not isinstance(value, dict):
        problems.append(Problem("clusters: must hold cluster ids", path, lines.get(("clusters",))))
        return {}
    for name, keys in value.items():
        line = lines.get(("clusters", name))
        given = keys if isinstance(keys, dict) else {}
        _known(given, _CLUSTER_KEYS, ("clusters", name), lines, path, problems)
        for key in ("az_id", "region_id"):
            if not isinstance(given.get(key), str):
                problems.append(Problem(f"cluster {name} needs {key}, a text", path, line))
        clusters[name] = {
            "network_type": str(given.get("network_type", "ROCE")),
            "az_id": str(given.get("az_id", "")),
            "region_id": str(given.get("region_id", "")),
        }
    return clusters
