"""`msllm doctor`: what is wrong with this machine, and with the nodes of a job among each other."""

from __future__ import annotations

import json
import sys
import textwrap
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msllm.commands.options import AsJson, print_json
from msllm.errors import InputError, Problem

if TYPE_CHECKING:
    from msllm.doctor.examine import Report
    from msllm.doctor.visit import Finding

app = typer.Typer(invoke_without_command=True)

COLORS = {"passed": "green", "failed": "red", "error": "red", "warning": "yellow"}
LAPTOP = """\
There is no NPU here, and none is needed for this:
  bash scripts/quickstart.sh            text -> tokenizer -> data -> 2 processes -> kill -> resume, in 5 minutes
  msllm data convert ...                the data of a large run
  msllm check -c MODEL -p STRATEGY      whether a strategy for any cluster is legal, in a second
  msllm rehearse compile|memory|run     compiled by MindSpore's Ascend compiler, measured, and its numbers proven on CPU
  msllm ranktable generate|check|show   rank tables from files that servers gave you"""


@app.callback()
def doctor(
    context: typer.Context,
    rank_table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The rank table of the job; left out: RANK_TABLE_FILE.")
    ] = None,
    folder: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where runs will be written: its disk is tried with 64 MB.")
    ] = Path("."),
    node: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST", help="Compare clocks with this node too, over ssh; repeat it for more."),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Look at every layer, also above one that failed.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Start no MindSpore: seconds instead of half a minute.")
    ] = False,
    bundle: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all that was seen, addresses and names masked; looks at every layer."),
    ] = None,
    mask_key: Annotated[
        str | None,
        typer.Option(metavar="WORD", help="With --bundle: the same word on all nodes makes their masks the same."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="With --bundle: replace the file.")] = False,
    as_json: AsJson = False,
) -> None:
    """Find what is wrong with this machine: from the device up, each layer only where the one below passed.

    Each finding says what was seen, why it matters, and the command that mends it. The first one is to be mended first.

    Example, before the first run:  msllm doctor

    Example, with the job's table:  msllm doctor --rank-table rank_table.json --folder /data/runs

    Example, on every node:         msllm doctor --bundle node1.json --mask-key WORD

    Example, then:                  msllm doctor compare node*.json

    Exit code 0: healthy, perhaps with warnings. 1: something is wrong. 2: wrong usage.
    """
    # Outputs of commands and names of folders hold what a terminal may not know; a mark is better than no report.
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if context.invoked_subcommand is not None:
        return
    _require_legal(rank_table, folder, bundle, mask_key, overwrite)
    from msllm.doctor.bundle import make_bundle
    from msllm.doctor.examine import examine
    from msllm.doctor.host import Host
    from msllm.doctor.visit import Request
    from msllm.files import write_atomic

    request = Request(
        rank_table=str(rank_table.absolute()) if rank_table else None,
        folder=folder,
        nodes=tuple(node or ()),
        everything=everything or bundle is not None,
        quick=quick,
    )
    host = Host()
    report = _with_progress(lambda told: examine(host, request, told), as_json)
    if bundle is not None:
        document = make_bundle(host, request, report, mask_key)
        write_atomic(bundle, json.dumps(document, indent=1, ensure_ascii=False) + "\n")
    if as_json:
        print_json({**report.to_dict(), "bundle": bundle and str(bundle)})
    else:
        _print(report)
        if bundle is not None:
            typer.echo(f"wrote {bundle}; addresses and names are masked, but read it before you give it away")
    raise typer.Exit(0 if report.healthy else 1)


def _require_legal(
    rank_table: Path | None, folder: Path, bundle: Path | None, mask_key: str | None, overwrite: bool
) -> None:
    problems = []
    try:
        Path.cwd()
    except OSError:
        raise InputError("the current folder has been removed; cd to another one") from None
    if rank_table is not None and not rank_table.is_file():
        problems.append(Problem("--rank-table: there is no such file", rank_table))
    if not folder.is_dir():
        problems.append(Problem("--folder: there is no such folder", folder))
    if bundle is None:
        given = [name for name, value in (("--mask-key", mask_key), ("--overwrite", overwrite)) if value]
        problems += [Problem(f"{name} goes with --bundle FILE") for name in given]
    elif not bundle.parent.is_dir():
        problems.append(Problem(f"--bundle: there is no folder {bundle.parent}"))
    elif bundle.is_dir() or (bundle.exists() and not overwrite):
        problems.append(Problem("--bundle: is there already; give another name, or --overwrite", bundle))
    if mask_key is not None and not mask_key:
        problems.append(Problem("--mask-key is empty; give a word that the nodes share"))
    if problems:
        raise InputError(problems)


def _with_progress(run: Any, as_json: bool) -> Report:
    """Say on a terminal which layer is being looked at; some take half a minute."""
    from rich.console import Console

    console = Console(stderr=True)
    if as_json or not console.is_terminal:
        return run(lambda layer: None)
    with console.status("") as status:
        return run(lambda layer: status.update(f"looking at: {layer.title}"))


def _print(report: Report) -> None:
    width = max(len(layer.title) for layer in report.layers)
    for number, layer in enumerate(report.layers, start=1):
        typer.echo(f"{number} {layer.title:<{width}}  ", nl=False)
        typer.secho(layer.status, fg=COLORS.get(layer.status), bold=layer.status == "failed", nl=False)
        typer.echo(f": {layer.why_not}" if layer.why_not else "")
        for line in layer.seen:
            typer.echo(f"    {line}")
        for finding in layer.findings:
            _print_finding(finding)
    typer.echo("")
    errors = [finding for finding in report.findings if finding.severity == "error"]
    warnings = len(report.findings) - len(errors)
    said = f" and {_count(warnings, 'warning')}" if warnings else ""
    if errors:
        typer.secho(f"{_count(len(errors), 'error')}{said}; mend this first: {errors[0].seen}", fg="red", bold=True)
    else:
        typer.secho(f"nothing is wrong{said and ';' + said.removeprefix(' and')}", fg="green")
    if not report.has_npu:
        typer.echo(LAPTOP)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' if number != 1 else ''}"


def _print_finding(finding: Finding) -> None:
    typer.secho(f"    {finding.severity}: ", fg=COLORS[finding.severity], bold=True, nl=False)
    typer.echo(finding.seen)
    for name, text in (("why", finding.why), ("mend", finding.mend)):
        typer.echo(textwrap.indent(text, " " * 14).replace(" " * 14, f"      {name + ':':<8}", 1))


@app.command()
def compare(
    files: Annotated[
        list[Path], typer.Argument(metavar="BUNDLE...", help="Files of `msllm doctor --bundle`, one a node.")
    ],
    as_json: AsJson = False,
) -> None:
    """Say what differs between nodes: CANN, TLS switch, rank table, packages, driver, variables, clocks, addresses.

    A node is called by the name of its file.

    Example: msllm doctor compare node1.json node2.json node3.json

    Exit code 0: nothing that would break a job. 1: something would. 2: wrong usage.
    """
    from msllm.doctor.bundle import read_bundle
    from msllm.doctor.compare import compare as run

    if len(set(files)) < 2:
        raise InputError("give two bundles or more, of different nodes")
    problems: list[Problem] = []
    bundles = {}
    names = [file.stem for file in files]
    for file in files:
        try:
            bundles[file.stem if names.count(file.stem) == 1 else str(file)] = read_bundle(file)
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    found = run(bundles)
    wrong = any(finding.severity == "error" for finding in found)
    if as_json:
        print_json({"nodes": list(bundles), "equal": not wrong, "findings": [asdict(finding) for finding in found]})
    else:
        for finding in found:
            _print_finding(finding)
        if not found:
            typer.secho(f"{len(bundles)} nodes agree in all that is compared", fg="green")
    raise typer.Exit(1 if wrong else 0)
