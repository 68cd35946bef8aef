"""`msllm bench comm`."""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msllm.commands.options import AsJson, print_json
from msllm.errors import InputError

if TYPE_CHECKING:
    from msllm.bench.comm_verdict import Figures

UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
LEAST = 4096
RESULT, PICTURE = "comm.json", "comm.svg"


def comm(
    workers: Annotated[
        int | None, typer.Option("--workers", "-n", min=2, help="Start so many ranks here; left out: those of msrun.")
    ] = None,
    sizes: Annotated[str, typer.Option(help="Sizes with commas, from 4K on.")] = "64K,1M,16M",
    rounds: Annotated[int, typer.Option(min=1, help="Times that each collective runs; the median counts.")] = 10,
    group: Annotated[
        list[str] | None,
        typer.Option(metavar="RANKS", help="Another group to measure, as 0,1,2,3; repeat it for more."),
    ] = None,
    device_target: Annotated[str, typer.Option(help="auto, CPU or Ascend.")] = "auto",
    chip: Annotated[str | None, typer.Option(help="Whose links to compare with; left out on Ascend: 910B.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help=f"Folder for {RESULT} and {PICTURE}.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Bandwidth between every two ranks and in groups, over sizes, against the links' nominal rates.

    On one server: msllm bench comm --workers 8 --output comm/

    On several, on each: msrun --worker_num 16 --local_worker_num 8 --master_addr A --node_rank K $(which msllm) bench comm

    GB/s are what each rank sends at least; a pair is measured by its AllReduce. Training on these devices makes it slower.
    """
    from msllm.hardware.servers import SERVERS, USUAL_CHIP
    from msllm.parallel.scheduler import is_scheduler, run_scheduler
    from msllm.parallel.world import launched_processes, resolve_device_target

    size_list, more = _sizes(sizes), _groups(group or [])
    if chip is not None and chip not in SERVERS:
        raise InputError(f"--chip {chip}: no links are known of it; known: {', '.join(SERVERS)}")
    target = resolve_device_target(device_target)
    if is_scheduler():
        run_scheduler(target)
        return
    started = launched_processes()
    count = workers or started
    if workers is not None and started > 1:
        raise InputError(f"--workers starts ranks by itself, and msrun has started {started}; leave one of them out")
    if count < 2:
        raise InputError("there is one rank, which has nobody to talk to; give --workers N, or start under msrun")
    beyond = [ranks for ranks in more if max(ranks) >= count]
    if beyond:
        raise InputError(f"--group {','.join(map(str, beyond[0]))}: ranks are 0 to {count - 1}")
    if workers is not None:
        document = _start_here(workers)
        _show(document, as_json)
        if output is not None:
            _write(document, output)
        return
    figures = _measure(target, size_list, rounds, more, chip or (USUAL_CHIP if target == "Ascend" else None))
    if figures is not None:
        from msllm.bench.comm_verdict import document as as_document

        document = as_document(figures)
        _show(document, as_json)
        if output is not None:
            _write(document, output)


def _sizes(text: str) -> list[int]:
    found = []
    for word in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,9})\s*([KMG]?)B?\s*", word, re.IGNORECASE)
        size = int(match[1]) * UNITS[match[2].upper()] if match else 0
        if size < LEAST:
            raise InputError(f"--sizes {text}: {word.strip()!r} is no size from {LEAST} bytes on, as 64K or 16M")
        found.append(size)
    return sorted(set(found))


def _groups(texts: list[str]) -> list[tuple[int, ...]]:
    found = []
    for text in texts:
        words = [word.strip() for word in text.split(",")]
        ranks = tuple(int(word) for word in words if re.fullmatch("[0-9]{1,6}", word))
        if len(ranks) != len(words) or len(set(ranks)) < max(2, len(ranks)):
            raise InputError(f"--group {text}: expected two or more different ranks, as 0,1,2,3")
        found.append(tuple(sorted(ranks)))
    return found


def _start_here(workers: int) -> dict[str, Any]:
    """Run this very command on ranks of this machine, and read what the first of them has found."""
    from msllm.testing.ranks import installed_script, run_on_ranks

    words, kept = iter(sys.argv[1:]), []
    for word in words:
        if word in ("--workers", "-n", "--output", "-o"):
            next(words)
        elif word != "--json" and not word.startswith(("--workers=", "--output=")):
            kept.append(word)
    with tempfile.TemporaryDirectory(prefix="msllm-comm-") as folder:
        logs = Path(folder) / "logs"
        run_on_ranks(
            installed_script("msllm"), [*kept, "--output", folder], ranks=workers, log_dir=logs, timeout=3600.0
        )
        return dict(json.loads((Path(folder) / RESULT).read_text()))


def _measure(
    target: str, sizes: list[int], rounds: int, more: list[tuple[int, ...]], chip: str | None
) -> Figures | None:
    """What the ranks have measured together; None on all but the first."""
    from msllm.bench.comm_verdict import Figures
    from msllm.commands.mindspore_session import mindspore_session

    main = int(os.environ.get("RANK_ID") or 0) == 0

    def told(done: int, of: int) -> None:
        if main and (done == of or done % max(1, of // 10) == 0):
            typer.echo(f"{done} of {of} measured", err=True)

    with mindspore_session():
        from msllm.bench.comm_measure import measure

        rank, servers, measurements, seconds = measure(target, sizes, rounds, more, told)
    return Figures(servers, measurements, seconds, chip) if rank == 0 else None


def _figures_of(document: dict[str, Any]) -> Figures:
    from msllm.bench.comm_plan import Measurement
    from msllm.bench.comm_verdict import Figures

    rows = document["measurements"]
    measurements = [Measurement(row["kind"], tuple(row["ranks"]), row["bytes"], row["group"]) for row in rows]
    return Figures(document["servers"], measurements, [row["seconds"] for row in rows], document["chip"])


def _show(document: dict[str, Any], as_json: bool) -> None:
    from msllm.bench import comm_picture

    if as_json:
        print_json(document)
        return
    figures = _figures_of(document)
    largest = max(measurement.size for measurement in figures.measurements)
    typer.echo(f"GB/s of every pair at {comm_picture.size_text(largest)}")
    for line in [*comm_picture.matrix(figures), "", *comm_picture.group_lines(figures), "", *document["remarks"]]:
        typer.echo(line)


def _write(document: dict[str, Any], output: Path) -> None:
    from msllm.bench.comm_picture import svg
    from msllm.files import write_atomic

    output.mkdir(parents=True, exist_ok=True)
    write_atomic(output / RESULT, json.dumps(document, indent=2) + "\n")
    write_atomic(output / PICTURE, svg(_figures_of(document)))
