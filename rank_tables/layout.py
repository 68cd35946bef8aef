"""Which rank of a strategy stands on which server, and whether tensor parallel leaves a server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from msllm.errors import InputError
from rank_tables.table import RankTable, in_rank_order


@dataclass(frozen=True)
class Coordinate:
    """Where a rank stands in a strategy."""

    stage: int
    data: int
    tensor: int


@dataclass(frozen=True)
class Strategy:
    """Degrees, and the place of every rank."""

    data: int
    tensor: int
    stages: int
    coordinates: tuple[Coordinate, ...]
    """By rank."""

    def tensor_groups(self) -> list[list[int]]:
        """Ranks that share weight matrices, group by group."""
        groups: dict[tuple[int, int], list[int]] = {}
        for rank, place in enumerate(self.coordinates):
            groups.setdefault((place.stage, place.data), []).append(rank)
        return list(groups.values())


@dataclass(frozen=True)
class Crossing:
    """A tensor-parallel group on more than one server."""

    ranks: tuple[int, ...]
    servers: tuple[str, ...]
    super_pod: str | None
    """The super pod that they share; None: none, so that the group talks over RoCE."""

    def __str__(self) -> str:
        over = (
            f"inside super pod {self.super_pod}" if self.super_pod is not None else "over the network between servers"
        )
        ranks = f"{self.ranks[0]} to {self.ranks[-1]}" if _consecutive(self.ranks) else ", ".join(map(str, self.ranks))
        return f"tensor-parallel group of ranks {ranks} spans {len(self.servers)} servers ({', '.join(self.servers)}), {over}"


@dataclass(frozen=True)
class Proposal:
    """Whether another rank order keeps tensor parallel inside servers."""

    verdict: str
    """unneeded, helps, or impossible."""
    message: str
    moves: tuple[tuple[str, int, int, int], ...] = ()
    """server_id, device_id, rank now, rank proposed: of the devices whose rank changes."""

    def to_dict(self) -> dict[str, Any]:
        """For --json."""
        names = ("server_id", "device_id", "rank", "proposed_rank")
        moves = [dict(zip(names, move)) for move in self.moves]
        return {"verdict": self.verdict, "message": self.message, "moves": moves}


def require_fit(table: RankTable, strategy: Strategy) -> None:
    """InputError where a strategy needs another number of devices than the table has."""
    needed = len(strategy.coordinates)
    if needed != table.size:
        raise InputError(
            f"the strategy needs {needed} devices (data_parallel {strategy.data} x model_parallel {strategy.tensor} x "
            f"pipeline_stage {strategy.stages}), but the rank table has {table.size}"
        )


def crossings(table: RankTable, strategy: Strategy) -> list[Crossing]:
    """Every tensor-parallel group that leaves its server."""
    server_of = {device.rank_id: server.server_id for server, device in table.places()}
    found = []
    for ranks in strategy.tensor_groups():
        servers = tuple(dict.fromkeys(server_of[rank] for rank in ranks))
        if len(servers) > 1:
            pods = {table.group_of(server) if table.super_pods else None for server in servers}
            found.append(Crossing(tuple(ranks), servers, pods.pop() if len(pods) == 1 else None))
    return found


def propose_order(table: RankTable, strategy: Strategy) -> Proposal:
    """A rank order that keeps tensor parallel inside servers, where there is one and the table's own does not.

    Tensor-parallel groups are consecutive ranks, so that they stay inside equal servers exactly where model_parallel divides
    a server's devices and each server's ranks are one block; the block order that MindSpore allows is that of server_id.
    """
    now = crossings(table, strategy)
    if not now:
        return Proposal("unneeded", "no other order is needed: every tensor-parallel group stays inside one server")
    ordered = RankTable(table.version, in_rank_order(table.servers), table.super_pods, table.clusters)
    then = crossings(ordered, strategy)
    sizes = {len(server.devices) for server in table.servers}
    if then:
        devices = max(sizes)
        legal = [degree for degree in range(1, devices + 1) if all(size % degree == 0 for size in sizes)]
        fewer = (
            f"; `msllm ranktable merge` brings {len(now)} such groups down to {len(then)}"
            if len(then) < len(now)
            else ""
        )
        message = (
            f"no order keeps tensor parallel inside servers: model_parallel ({strategy.tensor}) does not divide the {devices} "
            f"devices of a server; model_parallel of {', '.join(map(str, legal))} would stay inside{fewer}"
        )
        return Proposal("impossible", message)
    new_rank = {(server.server_id, device.device_id): device.rank_id for server, device in ordered.places()}
    moves = tuple(
        (server.server_id, device.device_id, device.rank_id, new_rank[server.server_id, device.device_id])
        for server, device in table.places()
        if device.rank_id != new_rank[server.server_id, device.device_id]
    )
    message = (
        f"ranks in blocks by server keep all {len(strategy.tensor_groups())} tensor-parallel groups inside servers "
        f"({len(now)} leave theirs now); `msllm ranktable merge TABLE --output NEW` writes that order"
    )
    return Proposal("helps", message, moves)


def _consecutive(ranks: Sequence[int]) -> bool:
    return list(ranks) == list(range(ranks[0], ranks[0] + len(ranks)))
