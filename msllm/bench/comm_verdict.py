"""What measured bandwidths say: which ranks are near each other, which pair is slow, how far a link is from its rate."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from msllm.bench.comm_plan import ALL_REDUCE, Measurement
from msllm.hardware.servers import SERVERS

SLOW = 0.7
"""A pair is slow below so much of the median of its kind."""
NEAR = 0.75
"""Ranks of a server are near each other above so much of its fastest pair."""
GIGA = 1e9


@dataclass(frozen=True)
class Figures:
    """What was measured, as GB/s (10^9 bytes) that each rank sends.

    Args:
        servers: of each rank, the number of its server.
        measurements, seconds: what was measured, and the time that it took.
        chip: name in hardware.servers, None where there is no link to compare with.
    """

    servers: Sequence[int]
    measurements: Sequence[Measurement]
    seconds: Sequence[float]
    chip: str | None = None
    _rates: dict[Measurement, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        for measurement, taken in zip(self.measurements, self.seconds):
            self._rates[measurement] = measurement.on_the_wire / taken / GIGA if taken > 0 else 0.0

    def rate(self, measurement: Measurement) -> float:
        """GB/s."""
        return self._rates[measurement]

    def pairs(self) -> dict[tuple[int, int], float]:
        """GB/s of each pair at the largest size."""
        found = {}
        largest = max(measurement.size for measurement in self.measurements)
        for measurement, rate in self._rates.items():
            if measurement.group == "pair" and measurement.kind == ALL_REDUCE and measurement.size == largest:
                found[(measurement.ranks[0], measurement.ranks[1])] = rate
        return found

    def same_server(self, pair: tuple[int, int]) -> bool:
        """Whether two ranks are on one server."""
        return self.servers[pair[0]] == self.servers[pair[1]]

    def nominal(self, inside: bool) -> tuple[str, float] | None:
        """Name and GB/s of the link of a pair by its maker; None where the chip has none."""
        if self.chip not in SERVERS:
            return None
        link = SERVERS[self.chip].inside if inside else SERVERS[self.chip].between
        return link.name, link.bandwidth(2)


def remarks(figures: Figures) -> list[str]:
    """Sentences for people, the gravest first."""
    pairs = figures.pairs()
    return [*_slow(figures, pairs), *_neighbours(figures, pairs), *_against_nominal(figures, pairs)]


def slow_pairs(figures: Figures, pairs: Mapping[tuple[int, int], float]) -> dict[tuple[int, int], float]:
    """Pairs that are slow for their kind, with their share of its median."""
    found = {}
    for inside in (True, False):
        rates = {pair: rate for pair, rate in pairs.items() if figures.same_server(pair) == inside}
        if len(rates) < 3:
            continue
        median = statistics.median(rates.values())
        found.update({pair: rate / median for pair, rate in rates.items() if rate < SLOW * median})
    return found


def _slow(figures: Figures, pairs: Mapping[tuple[int, int], float]) -> list[str]:
    slow = slow_pairs(figures, pairs)
    found = []
    for rank in range(len(figures.servers)):
        # A rank all of whose pairs of a kind are slow is the one to look at, and not each of its pairs.
        for inside, where in ((True, "on its server"), (False, "on other servers")):
            own = [pair for pair in pairs if rank in pair and figures.same_server(pair) == inside]
            if len(own) > 1 and all(pair in slow for pair in own):
                shares = [slow.pop(pair) for pair in own]
                found.append(
                    f"rank {rank} is slow with every rank {where}: {100 * max(shares):.0f}% of the median at best"
                )
    for (first, second), share in sorted(slow.items(), key=lambda item: item[1]):
        rate = pairs[(first, second)]
        found.append(f"pair {first}-{second} is slow: {rate:.3g} GB/s, {100 * share:.0f}% of the median of its kind")
    return found


def _neighbours(figures: Figures, pairs: Mapping[tuple[int, int], float]) -> list[str]:
    """Ranks of a server between which the link is faster than to the others, as behind one switch."""
    found = []
    for server in dict.fromkeys(figures.servers):
        ranks = [rank for rank, of in enumerate(figures.servers) if of == server]
        rates = {pair: rate for pair, rate in pairs.items() if set(pair) <= set(ranks)}
        if len(ranks) < 4 or not rates:
            continue
        parts = near(ranks, rates)
        if 1 < len(parts) < len(ranks):
            names = " | ".join(", ".join(map(str, part)) for part in parts)
            found.append(f"nearer to each other on server {server}, as behind one switch: {names}")
    return found


def near(ranks: Sequence[int], rates: Mapping[tuple[int, int], float]) -> list[list[int]]:
    """Ranks in parts that fast pairs join."""
    fast = NEAR * max(rates.values())
    parts = [[rank] for rank in ranks]
    for (first, second), rate in rates.items():
        if rate < fast:
            continue
        one, other = (next(part for part in parts if rank in part) for rank in (first, second))
        if one is not other:
            one.extend(other)
            parts.remove(other)
    return sorted(sorted(part) for part in parts)


def _against_nominal(figures: Figures, pairs: Mapping[tuple[int, int], float]) -> list[str]:
    found = []
    for inside, where in ((True, "inside a server"), (False, "between servers")):
        rates = [rate for pair, rate in pairs.items() if figures.same_server(pair) == inside]
        link = figures.nominal(inside)
        if rates and link:
            name, nominal = link
            median = statistics.median(rates)
            found.append(
                f"pairs {where}: median {median:.3g} GB/s, {100 * median / nominal:.0f}% of {name}'s {nominal:g} GB/s"
            )
    return found


def document(figures: Figures) -> dict[str, Any]:
    """Everything as JSON."""
    links = {"inside": figures.nominal(True), "between": figures.nominal(False)}
    return {
        "ranks": len(figures.servers),
        "servers": list(figures.servers),
        "chip": figures.chip,
        "nominal": {where: link and {"link": link[0], "gb_per_second": link[1]} for where, link in links.items()},
        "measurements": [
            {
                "kind": measurement.kind,
                "group": measurement.group,
                "ranks": list(measurement.ranks),
                "bytes": measurement.size,
                "seconds": taken,
                "gb_per_second": figures.rate(measurement),
            }
            for measurement, taken in zip(figures.measurements, figures.seconds)
        ],
        "remarks": remarks(figures),
    }
