"""Which device of a job is in which server, and what groups of them are joined by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msllm.hardware.links import Link
from msllm.hardware.servers import SERVERS


@dataclass(frozen=True)
class Cluster:
    """Equal servers; rank r runs on server r // devices_per_server, as msrun numbers them."""

    servers: int
    devices_per_server: int
    chip: str
    hbm_gb: int
    inside: Link
    between: Link

    @property
    def devices(self) -> int:
        """Devices of all servers."""
        return self.servers * self.devices_per_server

    def server_of(self, rank: int) -> int:
        """The server that a rank runs on."""
        return rank // self.devices_per_server

    def spans_servers(self, ranks: Sequence[int]) -> bool:
        """Whether a group of ranks is spread over several servers."""
        return len({self.server_of(rank) for rank in ranks}) > 1


def usual_cluster(chip: str, devices: int) -> Cluster:
    """As many of the chip's usual servers as `devices` need; KeyError for a chip that has none."""
    server = SERVERS[chip]
    return Cluster(
        servers=-(-devices // server.devices),
        devices_per_server=server.devices,
        chip=chip,
        hbm_gb=server.hbm_gb[0],
        inside=server.inside,
        between=server.between,
    )
