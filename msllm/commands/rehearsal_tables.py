"""What a rehearsal has found, as tables and bars on the terminal."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

_BAR = 40
_PARTS = (
    ("weights", "weights_bytes", "blue"),
    ("optimizer", "optimizer_bytes", "cyan"),
    ("gradients", "gradient_bytes", "magenta"),
    ("activations", "activation_bytes", "green"),
    ("allowances", "allowance_bytes", "yellow"),
)


def print_ranks(reports: list[dict[str, Any]]) -> None:
    """One line a rank: what it holds and what compiling it took."""
    table = Table("rank", "stage", "parameters", "weights", "optimizer", "compile time", "host memory", box=None)
    for report in reports:
        table.add_row(
            str(report["rank"]),
            str(report["stage"]),
            f"{report['parameters']:,}",
            _size(report["weights_bytes"]),
            _size(report["optimizer_bytes"]),
            f"{report['compile_seconds']:.0f} s",
            _size(report["host_bytes"]),
        )
    Console().print(table)


def print_collectives(reports: list[dict[str, Any]]) -> None:
    """What each rank sends in a step; ranks that send the same share their lines."""
    table = Table(title="what a step sends", box=None)
    for name in ("ranks", "collective", "axis", "link", "number", "payload", "sent by a rank"):
        table.add_column(name, no_wrap=True)
    groups: dict[tuple, list[int]] = {}
    for report in reports:
        key = tuple(tuple(sorted(row.items())) for row in report["collectives"])
        groups.setdefault(key, []).append(report["rank"])
    for key, ranks in groups.items():
        for number, row in enumerate(map(dict, key)):
            table.add_row(
                " ".join(map(str, ranks)) if number == 0 else "",
                row["kind"],
                row["axis"],
                "in a server" if row["link"] == "inside" else "between servers",
                str(row["number"]),
                _size(row["bytes"]),
                _size(row["sent"]),
            )
    if any(groups):
        Console().print(table)


def print_memory(reports: list[dict[str, Any]]) -> None:
    """A bar for each rank, as long as the chip's memory, and the numbers behind it."""
    console = Console()
    for report in reports:
        memory = report["memory"]
        parts = {**report, **memory}
        parts["allowance_bytes"] = memory["hccl_bytes"] + memory["workspace_bytes"] + memory["fragmentation_bytes"]
        bar = "".join(
            f"[{colour}]{'█' * round(_BAR * parts[key] / memory['hbm_bytes'])}[/]" for _, key, colour in _PARTS
        )
        colour = "green" if memory["fits"] else "red"
        verdict = f"[{colour}]{_size(memory['total_bytes'])} of {_size(memory['hbm_bytes'])}[/]"
        console.print(f"rank {report['rank']:>4} {bar} {verdict}")
        numbers = ", ".join(f"[{colour}]{name}[/] {_size(parts[key])}" for name, key, colour in _PARTS)
        console.print(f"          {numbers}; communication groups: {memory['groups']}")


def _size(number: float) -> str:
    for unit in ("B", "KB", "MB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.2f} GB"
