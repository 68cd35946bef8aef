"""A rank table as values, and as the JSON text that is written."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Device:
    """One NPU (on an A3: one of the two dies of a package)."""

    device_id: int
    """Physical number in its server: N of /dev/davinciN."""
    device_ip: str
    """Address of its network card; "" in the table of one server that leaves it out."""
    rank_id: int = 0
    more: Mapping[str, str] = field(default_factory=dict)
    """Optional keys: super_device_id, dpu_ip, ..."""

    def to_dict(self) -> dict[str, str]:
        """As it stands in a table: every value a string."""
        address = {"device_ip": self.device_ip} if self.device_ip else {}
        return {"device_id": str(self.device_id), **address, "rank_id": str(self.rank_id), **self.more}


@dataclass(frozen=True)
class Server:
    """One machine."""

    server_id: str
    devices: tuple[Device, ...]
    more: Mapping[str, str] = field(default_factory=dict)
    """Optional keys: host_nic_ip, server_ip, ..."""

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a table."""
        return {"server_id": self.server_id, "device": [device.to_dict() for device in self.devices], **self.more}


@dataclass(frozen=True)
class Group:
    """Servers that belong together: a super pod (version 1.2) or a cluster (cross-cluster training)."""

    name: str
    server_ids: tuple[str, ...]
    more: Mapping[str, str] = field(default_factory=dict)
    """Of a cluster: network_type, az_id, region_id."""

    def to_dict(self, key: str) -> dict[str, Any]:
        """As it stands in a table; `key` is super_pod_id or cluster_id."""
        return {key: self.name, **self.more, "server_list": [{"server_id": name} for name in self.server_ids]}


@dataclass(frozen=True)
class RankTable:
    """A whole table."""

    version: str
    servers: tuple[Server, ...]
    super_pods: tuple[Group, ...] = ()
    clusters: tuple[Group, ...] = ()

    @property
    def size(self) -> int:
        """Number of ranks."""
        return sum(len(server.devices) for server in self.servers)

    def places(self) -> Iterator[tuple[Server, Device]]:
        """Every device with its server, by rank."""
        pairs = [(server, device) for server in self.servers for device in server.devices]
        return iter(sorted(pairs, key=lambda pair: pair[1].rank_id))

    def group_of(self, server_id: str) -> str | None:
        """Name of the super pod or cluster of a server; None where the table has none."""
        for group in (*self.super_pods, *self.clusters):
            if server_id in group.server_ids:
                return group.name
        return None

    def to_dict(self) -> dict[str, Any]:
        """Plain values in the order of MindSpore's samples."""
        document: dict[str, Any] = {
            "version": self.version,
            "server_count": str(len(self.servers)),
            "server_list": [server.to_dict() for server in self.servers],
        }
        if self.super_pods:
            document["super_pod_list"] = [pod.to_dict("super_pod_id") for pod in self.super_pods]
        if self.clusters:
            document["cluster_list"] = [cluster.to_dict("cluster_id") for cluster in self.clusters]
        return {**document, "status": "completed"}

    def to_text(self) -> str:
        """JSON with one device a line, so that a table can be read and compared by people."""
        return _render(self.to_dict(), "") + "\n"


def _render(value: Any, indent: str) -> str:
    """JSON in which a mapping of texts alone, as a device is, stays on one line."""
    inner = indent + "  "
    if isinstance(value, list):
        return "[\n" + ",\n".join(inner + _render(item, inner) for item in value) + f"\n{indent}]"
    if not isinstance(value, dict) or all(isinstance(item, str) for item in value.values()):
        return json.dumps(value, ensure_ascii=False)
    items = (f"{inner}{json.dumps(key)}: {_render(item, inner)}" for key, item in value.items())
    return "{\n" + ",\n".join(items) + f"\n{indent}}}"


def from_document(document: Mapping[str, Any]) -> RankTable:
    """The table that a checked document says; see `rank_tables.check`."""

    def more(values: Mapping[str, Any], *own: str) -> dict[str, str]:
        return {key: value for key, value in values.items() if key not in own}

    servers = tuple(
        Server(
            server["server_id"],
            tuple(
                Device(
                    int(device["device_id"]),
                    device.get("device_ip", ""),
                    int(device["rank_id"]),
                    more(device, "device_id", "device_ip", "rank_id"),
                )
                for device in server["device"]
            ),
            more(server, "server_id", "device"),
        )
        for server in document["server_list"]
    )

    def groups(values: list[dict[str, Any]], key: str) -> tuple[Group, ...]:
        return tuple(
            Group(value[key], tuple(m["server_id"] for m in value["server_list"]), more(value, key, "server_list"))
            for value in values
        )

    pods = groups(document.get("super_pod_list", []), "super_pod_id")
    clusters = groups(document.get("cluster_list", []), "cluster_id")
    return RankTable(document["version"], servers, pods, clusters)


def in_rank_order(servers: tuple[Server, ...]) -> tuple[Server, ...]:
    """Ranks from 0 in blocks by dictionary order of server_id, as MindSpore asks for; inside a server their order stays.

    Devices of the same rank, as merged tables have them, come by device_id.
    """
    ordered, rank = [], 0
    for server in sorted(servers, key=lambda server: server.server_id):
        devices = []
        for device in sorted(server.devices, key=lambda device: (device.rank_id, device.device_id)):
            devices.append(Device(device.device_id, device.device_ip, rank, device.more))
            rank += 1
        ordered.append(Server(server.server_id, tuple(devices), server.more))
    return tuple(ordered)
