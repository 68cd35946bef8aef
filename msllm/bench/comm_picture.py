"""Measured bandwidths as a matrix: in the terminal and as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from msllm.bench.comm_verdict import Figures, remarks

CELL, MARGIN, LINE = 44, 60, 18


def matrix(figures: Figures) -> list[str]:
    """Lines with the GB/s of every pair."""
    pairs, count = figures.pairs(), len(figures.servers)
    width = max(7, len(str(count)) + 2)
    lines = ["rank".rjust(6) + "".join(str(rank).rjust(width) for rank in range(count))]
    for row in range(count):
        cells = [_cell(pairs, row, column) for column in range(count)]
        lines.append(str(row).rjust(6) + "".join(cell.rjust(width) for cell in cells))
    return lines


def _cell(pairs: Mapping[tuple[int, int], float], row: int, column: int) -> str:
    if row == column:
        return "-"
    rate = pairs.get((min(row, column), max(row, column)))
    return "" if rate is None else f"{rate:.3g}"


def group_lines(figures: Figures) -> list[str]:
    """A line for each collective of each group, with its GB/s at every size."""
    rows: dict[tuple[str, str], dict[int, float]] = {}
    for measurement in figures.measurements:
        if measurement.group != "pair":
            rows.setdefault((measurement.group, measurement.kind), {})[measurement.size] = figures.rate(measurement)
    sizes = sorted({size for rates in rows.values() for size in rates})
    lines = ["group".ljust(26) + "collective".ljust(15) + "".join(size_text(size).rjust(10) for size in sizes)]
    for (group, kind), rates in rows.items():
        lines.append(group[:25].ljust(26) + kind.ljust(15) + "".join(f"{rates[size]:.3g}".rjust(10) for size in sizes))
    return lines


def size_text(size: int) -> str:
    """1 KB = 1024 bytes."""
    for unit, factor in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if size >= factor:
            return f"{size / factor:g} {unit}"
    return f"{size} B"


def svg(figures: Figures) -> str:
    """The matrix as a picture: the darker, the faster; servers are framed, remarks stand below."""
    pairs, count = figures.pairs(), len(figures.servers)
    most = max(pairs.values(), default=1.0) or 1.0
    said = remarks(figures)
    side = MARGIN + CELL * count + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{max(side, 640)}" height="{side + LINE * (len(said) + 1)}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="8" y="20">GB/s of every pair of ranks</text>',
    ]
    for rank in range(count):
        along = MARGIN + CELL * rank + CELL / 2
        parts.append(f'<text x="{along:g}" y="{MARGIN - 6}" text-anchor="middle">{rank}</text>')
        parts.append(f'<text x="{MARGIN - 8}" y="{along + 4:g}" text-anchor="end">{rank}</text>')
        for other in range(count):
            parts.append(_square(pairs, rank, other, most))
    parts += _frames(figures.servers)
    for number, text in enumerate(said):
        parts.append(f'<text x="8" y="{side + LINE * (number + 1)}">{escape(text)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _square(pairs: Mapping[tuple[int, int], float], row: int, column: int, most: float) -> str:
    x, y = MARGIN + CELL * column, MARGIN + CELL * row
    rate = pairs.get((min(row, column), max(row, column)), 0.0)
    share = rate / most if row != column else 0.0
    light = 97 - 55 * share
    text = (
        f'<text x="{x + CELL / 2:g}" y="{y + CELL / 2 + 4:g}" text-anchor="middle">{_cell(pairs, row, column)}</text>'
    )
    return (
        f'<rect x="{x}" y="{y}" width="{CELL}" height="{CELL}" fill="hsl(205,70%,{light:.0f}%)" stroke="white"/>{text}'
    )


def _frames(servers: Sequence[int]) -> list[str]:
    """A frame round the pairs of each server whose ranks follow each other."""
    found, start = [], 0
    for rank in range(1, len(servers) + 1):
        if rank < len(servers) and servers[rank] == servers[start]:
            continue
        corner, side = MARGIN + CELL * start, CELL * (rank - start)
        found.append(f'<rect x="{corner}" y="{corner}" width="{side}" height="{side}" fill="none" stroke="black"/>')
        start = rank
    return found
