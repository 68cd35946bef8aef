"""The table that `npu-smi info` prints.

Two lines a chip: number and name, health, power; chip and, on an A3, physical number, bus address, usage. Then a table of
processes. Columns are wider in newer drivers, so cells are told by their bars and their order.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_VERSIONS = re.compile(r"npu-smi\s+(\S+)\s+Version:\s*(\S+)", re.IGNORECASE)
_USAGE = re.compile(r"(\d+)\s*/\s*(\d+)")


@dataclass(frozen=True)
class NpuRow:
    """One chip: what MindSpore counts as a device."""

    npu: int
    """Number of the card, for `npu-smi info -i`."""
    chip: int
    """Number of the chip on its card, for `-c`."""
    device: int
    """N of /dev/davinciN."""
    name: str
    """910B3; on an A3 Ascend910."""
    health: str
    bus: str
    memory_used_mb: int | None
    memory_total_mb: int | None
    """Of the high-bandwidth memory."""


@dataclass(frozen=True)
class NpuProcess:
    """A process that has memory on a chip."""

    npu: int
    chip: int
    pid: int
    name: str
    memory_mb: int


@dataclass
class NpuTable:
    """All that the table says."""

    tool: str | None = None
    driver: str | None = None
    rows: list[NpuRow] = field(default_factory=list)
    processes: list[NpuProcess] = field(default_factory=list)


def parse(text: str) -> NpuTable:
    """Read the table; lines that are none of it are passed over, and a text that is no table gives no rows."""
    table = NpuTable()
    match = _VERSIONS.search(text)
    if match:
        table.tool, table.driver = match[1], match[2].rstrip("|")
    above: list[list[str]] | None = None
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")] if line.strip().startswith("|") else []
        words = [cell.split() for cell in cells]
        process = _process(cells, words)
        if process:
            table.processes.append(process)
        elif len(cells) == 3 and _numbers(words[0][:1]) and len(words[0]) == 2 and not _is_bus(cells[1]):
            above = words
        elif len(cells) == 3 and above is not None and words[0] and _numbers(words[0]) and _is_bus(cells[1]):
            table.rows.append(_row(above, words, cells))
            above = None
    return table


def _row(above: list[list[str]], words: list[list[str]], cells: list[str]) -> NpuRow:
    npu, chip = int(above[0][0]), int(words[0][0])
    usages = _USAGE.findall(cells[2])
    # The last usage is that of the HBM; a 310 has one column only.
    used, total = map(int, usages[-1]) if usages else (None, None)
    return NpuRow(
        npu=npu,
        chip=chip,
        device=int(words[0][1]) if len(words[0]) > 1 else npu,
        name=above[0][1],
        health=" ".join(above[1]) or "unknown",
        bus=cells[1],
        memory_used_mb=used,
        memory_total_mb=total,
    )


def _process(cells: list[str], words: list[list[str]]) -> NpuProcess | None:
    """A row of the second table: NPU and chip, process id, name (often empty), MB."""
    if len(cells) != 4 or len(words[0]) != 2 or not _numbers([*words[0], *words[1], *words[3]]):
        return None
    if len(words[1]) != 1 or len(words[3]) != 1:
        return None
    return NpuProcess(int(words[0][0]), int(words[0][1]), int(words[1][0]), cells[2], int(words[3][0]))


def _numbers(words: list[str]) -> bool:
    return bool(words) and all(word.isascii() and word.isdigit() for word in words)


def _is_bus(cell: str) -> bool:
    return cell.count(":") == 2 or cell.upper() == "NA"


def chip_of(rows: list[NpuRow]) -> str | None:
    """Name of the chip as this project calls it; None for one that it does not know.

    910B3 is an A2 whatever its last figure; an A3 says Ascend910 and has two chips a card.
    """
    names = {row.name.removeprefix("Ascend") for row in rows}
    if not rows or len(names) != 1:
        return None
    name = names.pop()
    if re.fullmatch(r"910B\d?C?", name):
        return "910B"
    if name == "910" and any(row.chip for row in rows) or re.fullmatch(r"910_93\S*|910C", name):
        return "910C"
    return "910A" if re.fullmatch(r"910(A|ProA|ProB|PremiumA)?", name) else None
