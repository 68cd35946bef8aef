"""Which collectives are measured among which ranks, in which order: the same list on every rank."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND = "AllReduce", "AllGather", "ReduceScatter", "Send"
MOST_PAIRED = 32
"""With more ranks, pairs are measured along rings of growing distance only: all of them would take hours and buffers."""


@dataclass(frozen=True)
class Measurement:
    """One figure."""

    kind: str
    ranks: tuple[int, ...]
    size: int
    """Bytes: of what is reduced, of all that is gathered, of all before it is scattered, of what is sent."""
    group: str
    """How the ranks are called; "pair" for two."""

    @property
    def on_the_wire(self) -> float:
        """Bytes that each rank sends at least, by which collectives of all sizes compare with a link's rate."""
        count = len(self.ranks)
        if self.kind == SEND:
            return float(self.size)
        return self.size * (count - 1) / count * (2 if self.kind == ALL_REDUCE else 1)


def pairs(size: int) -> list[tuple[int, int]]:
    """Pairs of `size` ranks: all, or for more than MOST_PAIRED those at distances 1, 2, 4, 8 ..."""
    if size <= MOST_PAIRED:
        return list(itertools.combinations(range(size), 2))
    distances = [1 << power for power in range((size - 1).bit_length()) if 1 << power < size]
    return sorted({tuple(sorted((rank, (rank + d) % size))) for d in distances for rank in range(size)})  # type: ignore[misc]


def groups(servers: Sequence[int], more: Sequence[tuple[int, ...]] = ()) -> dict[str, tuple[int, ...]]:
    """Groups that are measured: all ranks, those of each server, those at the same place of each server, and the user's.

    Args:
        servers: of each rank, the number of its server.
        more: groups that the user asks for.
    """
    found = {"all": tuple(range(len(servers)))}
    on: dict[int, list[int]] = {}
    for rank, server in enumerate(servers):
        on.setdefault(server, []).append(rank)
    if len(on) > 1:
        for server, ranks in on.items():
            if len(ranks) > 1:
                found[f"server {server}"] = tuple(ranks)
        for place in range(min(map(len, on.values()))):
            found[f"place {place} of each server"] = tuple(ranks[place] for ranks in on.values())
    for ranks_asked in more:
        found[",".join(map(str, ranks_asked))] = ranks_asked
    return found


def plan(
    servers: Sequence[int], sizes: Sequence[int], ascend: bool, more: Sequence[tuple[int, ...]] = ()
) -> list[Measurement]:
    """Everything to measure, pairs first.

    MindSpore's CPU backend sums in any group, gathers only among all ranks, and does not scatter or send (run on mindspore
    2.9.0). So a pair is measured by its AllReduce, on which both backends agree.
    """
    world = len(servers)
    found = [Measurement(ALL_REDUCE, pair, size, "pair") for size in sizes for pair in pairs(world)]
    for name, ranks in groups(servers, more).items():
        for size in sizes:
            found.append(Measurement(ALL_REDUCE, ranks, size, name))
            if ascend or name == "all":
                found.append(Measurement(ALL_GATHER, ranks, size, name))
            if ascend:
                found.append(Measurement(REDUCE_SCATTER, ranks, size, name))
    if ascend:
        found += [Measurement(SEND, pair, size, "pair") for size in sizes for pair in pairs(world)]
    return found
