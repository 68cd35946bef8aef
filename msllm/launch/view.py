"""Where the ranks of a job are: which one is slow, which one says nothing while others wait for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msllm.parallel.progress import COMPILING, PHASES, STARTING

Record = Mapping[str, Any]
"""What a rank has told (msllm.parallel.progress), and `idle`: seconds since it last told something."""

SILENT_SECONDS, SILENT_STEPS = 20.0, 5.0
"""A rank is silent once it has told nothing for so long, and for so many of its steps."""


@dataclass(frozen=True)
class View:
    """A glance at a job."""

    text: str
    """One line."""
    slowest: int | None
    """Rank that spends most time outside the graph, where the others wait for it; None before a step was made."""
    silent: tuple[int, ...]
    """Ranks that are behind the others and tell nothing."""


def view(ranks: Mapping[int, Record], workers: int) -> View:
    """Look at what is known of the ranks; those that have told nothing yet are starting."""
    records = {rank: ranks.get(rank) or {"phase": STARTING, "idle": 0.0} for rank in range(workers)}
    front = max(records.values(), key=_place)
    parts = [_where(front, workers)]
    slowest = _slowest(records)
    if slowest is not None and workers > 1:
        record = records[slowest]
        parts.append(
            f"slowest rank {slowest}: {record['own_seconds']:.2f} of {record['step_seconds']:.2f} s a step outside the graph"
        )
    silent = silent_ranks(records)
    if silent:
        parts.append(_silence(records, silent))
    return View("; ".join(parts), slowest, silent)


def _place(record: Record) -> tuple[int, int]:
    """How far a rank has come."""
    return int(record.get("step") or 0), PHASES.index(record["phase"]) if record["phase"] in PHASES else 0


def _where(record: Record, workers: int) -> str:
    count = f"{workers} ranks" if workers > 1 else "1 rank"
    step = record.get("step")
    if not step:
        return f"{count} {record['phase']}" + (f" for {record['idle']:.0f} s" if record["phase"] == COMPILING else "")
    rate = record.get("tokens_per_second")
    speed = f", {rate:,.0f} tokens/s" if rate else ""
    return f"{count}, {record['phase']}, step {step}/{record.get('train_steps', '?')}{speed}"


def _slowest(records: Mapping[int, Record]) -> int | None:
    timed = {rank: float(record["own_seconds"]) for rank, record in records.items() if "own_seconds" in record}
    return max(timed, key=lambda rank: timed[rank]) if timed else None


def silent_ranks(records: Mapping[int, Record]) -> tuple[int, ...]:
    """Ranks that are behind all others and have told nothing for long; all of them where none is behind."""
    least = min(_place(record) for record in records.values())
    behind = [rank for rank, record in records.items() if _place(record) == least]
    return tuple(rank for rank in behind if records[rank]["idle"] > _patience(records[rank]))


def _patience(record: Record) -> float:
    if record["phase"] in (STARTING, COMPILING):
        return 30 * SILENT_SECONDS  # a large graph compiles for minutes
    return max(SILENT_SECONDS, SILENT_STEPS * float(record.get("step_seconds") or 0.0))


def _silence(records: Mapping[int, Record], silent: tuple[int, ...]) -> str:
    first = records[silent[0]]
    step = f" of step {first['step']}" if first.get("step") else ""
    names = _names(silent)
    others = [rank for rank in records if rank not in silent]
    waiting = f" while {_names(tuple(others))} {'waits' if len(others) == 1 else 'wait'}" if others else ""
    return f"silent for {first['idle']:.0f} s: {names}, {first['phase']}{step}{waiting}"


def _names(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:8])) + (f" and {len(ranks) - 8} more" if len(ranks) > 8 else "")
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}"
