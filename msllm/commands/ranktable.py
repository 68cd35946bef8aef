"""`msllm ranktable`: make, merge, check, show and compare the file that tells HCCL where the ranks are."""

from __future__ import annotations

import shutil
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from msllm.commands.host_file import read_hosts
from msllm.commands.options import AsJson, ParallelFile, print_json
from msllm.commands.placed import placed_ranks
from msllm.errors import InputError, Problem

if TYPE_CHECKING:
    from rank_tables.generate import Generated
    from rank_tables.hosts import HostFile
    from rank_tables.sources import Collected
    from rank_tables.table import RankTable

SHOWN_WARNINGS = 8

app = typer.Typer(help="Make, merge, check, show and compare rank tables (RANK_TABLE_FILE).", no_args_is_help=True)

Table = Annotated[Path, typer.Argument(metavar="FILE", help="A rank table.")]
Output = Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The rank table to write.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file where it is there and differs.")]
ServerIp = Annotated[
    str | None, typer.Option(metavar="IP", help="This server's address; left out: that of the default route.")
]
HccnConf = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Read the device addresses from this file instead of hccn_tool.")
]


class Version(str, Enum):
    """Layouts of a rank table."""

    one_0 = "1.0"
    one_2 = "1.2"


@app.command()
def generate(
    output: Output,
    server_ip: ServerIp = None,
    hccn_conf: HccnConf = None,
    hosts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Servers: lines `host ip slots`, or YAML with hosts: (and clusters:)."),
    ] = None,
    device_ips: Annotated[
        str | None,
        typer.Option(metavar="IPS", help="Addresses of all devices, host after host: 192.168.1.8-15,192.168.2.8-15."),
    ] = None,
    collected: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="A file a server, as 10.0.0.1.txt: its hccn.conf or hccn_tool's output."),
    ] = None,
    ssh: Annotated[bool, typer.Option("--ssh", help="Ask every host of --hosts over ssh.")] = False,
    visible_devices: Annotated[
        str | None,
        typer.Option(metavar="IDS", help="Physical ids to use, as 4,5,6,7; left out: all, or the first slots."),
    ] = None,
    version: Annotated[
        Version | None, typer.Option(help="Layout; left out: 1.2 (A3) where super_device_ids are known, else 1.0.")
    ] = None,
    super_pod: Annotated[
        str | None, typer.Option(metavar="ID", help="A3: super pod of all servers; left out: what npu-smi says.")
    ] = None,
    ipv6: Annotated[bool, typer.Option("--ipv6", help="Take IPv6 addresses where devices have both.")] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write a rank table, of this server or of many; nothing is written that `check` would refuse.

    Example, one server:    msllm ranktable generate -o rank_table.json

    Example, over ssh:      msllm ranktable generate --hosts hosts.txt --ssh -o rank_table.json

    Example, by hand:       msllm ranktable generate --collected addresses/ -o rank_table.json

    Example, nothing asked: msllm ranktable generate --hosts hosts.txt --device-ips 192.168.1.8-23 -o rank_table.json
    """
    from rank_tables.generate import Wanted, write_table
    from rank_tables.generate import generate as run
    from rank_tables.hosts import expand_ips

    problems = _clashing_sources(hosts, device_ips, collected, ssh, hccn_conf, server_ip)
    chosen = _device_ids(visible_devices, problems)
    listed_ips = None
    if device_ips is not None:
        try:
            listed_ips = expand_ips(device_ips)
        except ValueError as error:
            problems.append(Problem(f"--device-ips: {error}"))
    if problems:
        raise InputError(problems)
    listed, said = _sources(hosts, collected, ssh, hccn_conf, server_ip, listed_ips is not None)
    wanted = Wanted(version.value if version else None, chosen, listed_ips, super_pod, ipv6)
    made = run(listed, said, wanted)
    write_table(made.table, output, overwrite)
    if hosts is None and collected is None and server_ip is None:
        address = made.table.servers[0].server_id
        note = f"server_id is {address}, this server's address on its default route; --server-ip sets another"
        made = replace(made, notes=(*made.notes, note))
    _report(made, output, as_json)


def _clashing_sources(
    hosts: Path | None,
    device_ips: str | None,
    collected: Path | None,
    ssh: bool,
    hccn_conf: Path | None,
    server_ip: str | None,
) -> list[Problem]:
    sources = {"--device-ips": device_ips, "--collected": collected, "--ssh": ssh or None, "--hccn-conf": hccn_conf}
    given = [name for name, value in sources.items() if value is not None]
    problems = []
    if len(given) > 1:
        problems.append(Problem(f"{' and '.join(given)} are two sources of device addresses; give one"))
    if ssh and hosts is None:
        problems.append(Problem("--ssh needs --hosts FILE: the servers to ask"))
    if server_ip is not None and (hosts or collected):
        problems.append(Problem("--server-ip is for this server alone; leave it out with --hosts or --collected"))
    if hosts is not None and hccn_conf is not None:
        problems.append(Problem("--hccn-conf is one server's; for several put such files in a folder for --collected"))
    return problems


def _device_ids(text: str | None, problems: list[Problem]) -> tuple[int, ...] | None:
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 2 for word in words):
        problems.append(Problem(f"--visible-devices {text!r} is no list of physical ids such as 4,5,6,7"))
        return None
    return tuple(int(word) for word in words)


def _sources(
    hosts: Path | None,
    collected: Path | None,
    ssh: bool,
    hccn_conf: Path | None,
    server_ip: str | None,
    all_listed: bool,
) -> tuple[HostFile, list[Collected] | None]:
    """The servers, and what each says about its devices; None where nobody has to be asked."""
    from rank_tables.generate import collected_in
    from rank_tables.hosts import Host, HostFile
    from rank_tables.sources import collect_here, collect_over_ssh, local_address, read_collected

    listed = read_hosts(hosts) if hosts is not None else None
    if collected is not None:
        found, said = collected_in(collected, listed.hosts if listed else None)
        return HostFile(tuple(found), listed.clusters if listed else {}), said
    if listed is not None:
        if ssh:
            return listed, collect_over_ssh([host.name for host in listed.hosts])
        return listed, None
    address = server_ip or local_address()
    here = HostFile((Host(address, address),))
    if all_listed:
        return here, None
    return here, [read_collected(hccn_conf) if hccn_conf is not None else collect_here()]


def _report(made: Generated, output: Path, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "output": str(output),
                "version": made.table.version,
                "servers": [server.server_id for server in made.table.servers],
                "ranks": made.table.size,
                "notes": list(made.notes),
            }
        )
        return
    for note in made.notes:
        typer.echo(f"note: {note}")
    typer.echo(f"wrote {output}: {_size(made.table)}")


def _size(table: RankTable) -> str:
    servers = "1 server" if len(table.servers) == 1 else f"{len(table.servers)} servers"
    return f"version {table.version}, {servers}, ranks 0 to {table.size - 1}"


@app.command()
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Rank tables of one server or more each.")],
    output: Output,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Put rank tables together and number the ranks anew, by dictionary order of server_id.

    Example: msllm ranktable merge server1.json server2.json -o rank_table.json
    """
    from rank_tables.generate import write_table
    from rank_tables.merge import merge as run

    made = run(files)
    write_table(made.table, output, overwrite)
    _report(made, output, as_json)


@app.command()
def check(
    table: Table,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="hccn|FILE|FOLDER",
            help="Also compare the addresses: with hccn_tool of this server, with a file of its output or a hccn.conf, "
            "or with a folder of such files, one a server.",
        ),
    ] = None,
    server_ip: Annotated[
        str | None, typer.Option(metavar="ID", help="With --against: the server_id that is compared.")
    ] = None,
    hccn_conf: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --against hccn: read this file instead of asking hccn_tool."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List every fault of a rank table with its line and entry: exit code 2 where there is one.

    Example: msllm ranktable check rank_table.json --against hccn
    """
    from rank_tables.against import stale
    from rank_tables.check import check_file

    if against is None and (server_ip or hccn_conf):
        raise InputError("--server-ip and --hccn-conf say what --against is compared with; give --against hccn")
    if hccn_conf is not None and against != "hccn":
        raise InputError(f"--hccn-conf goes with --against hccn; with --against {against} leave it out")
    found = check_file(table)
    faults = found.faults
    compared: list[str] = []
    if against is not None and found.table is not None:
        more, compared = stale(found.table, against, server_ip, hccn_conf)
        faults = faults + more
    if as_json:
        print_json(
            {
                "file": str(table),
                "legal": not faults,
                "faults": [asdict(fault) for fault in faults],
                "notes": [asdict(note) for note in found.notes],
                "compared": compared,
            }
        )
        raise typer.Exit(InputError.exit_code if faults else 0)
    for note in found.notes:
        typer.echo(f"note: {note.problem(None)}")
    if faults:
        raise InputError([fault.problem(table) for fault in faults])
    assert found.table is not None
    typer.secho(f"{table}: no fault; {_size(found.table)}", fg="green")
    if compared:
        typer.echo(f"addresses are those of {against} on {', '.join(compared)}")


@app.command()
def show(
    table: Table,
    parallel: ParallelFile = None,
    order: Annotated[
        bool, typer.Option("--order", help="With --parallel: propose ranks that keep tensor parallel inside servers.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Draw into a .svg or .html file.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw servers, cards and links; with a strategy also which rank holds which place in it.

    Example: msllm ranktable show rank_table.json --parallel parallel_configs/tiny_dp2.yaml --output table.html
    """
    from msllm.files import write_atomic
    from rank_tables import draw
    from rank_tables.check import read_table
    from rank_tables.generate import require_folder
    from rank_tables.layout import crossings, propose_order, require_fit
    from rank_tables.shape import ORDER

    if order and parallel is None:
        raise InputError("--order needs --parallel FILE: the strategy whose tensor parallel is kept inside servers")
    if output is not None:
        if output.suffix not in (".svg", ".html"):
            raise InputError(f"--output {output}: the name must end in .svg or .html")
        require_folder(output)
    read = read_table(table, accept=(ORDER,) if order else ())
    strategy = placed_ranks(parallel) if parallel is not None else None
    crossing, proposal = [], None
    if strategy is not None:
        require_fit(read, strategy)
        crossing = crossings(read, strategy)
        proposal = propose_order(read, strategy) if order else None
    picture = draw.Picture(table.name, read, strategy, crossing)
    remarks = [f"warning: {found}" for found in crossing[:SHOWN_WARNINGS]]
    if len(crossing) > SHOWN_WARNINGS:
        remarks.append(f"warning: and {len(crossing) - SHOWN_WARNINGS} more such groups; --json lists all")
    if proposal is not None:
        remarks.append(proposal.message)
    if output is not None:
        write_atomic(output, draw.svg(picture) if output.suffix == ".svg" else draw.html(picture, remarks))
    if as_json:
        proposed = {"order": proposal.to_dict()} if proposal else {}
        print_json({**picture.to_dict(), **proposed, "output": output and str(output)})
        return
    if output is not None:
        typer.echo(f"wrote {output}")
    else:
        typer.echo(draw.terminal(picture, shutil.get_terminal_size((124, 24)).columns))
    for remark in remarks:
        typer.echo(remark)
    for server_id, device_id, now, then in proposal.moves if proposal else ():
        typer.echo(f"  device {device_id} of {server_id}: rank {now} -> {then}")


@app.command()
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help="A rank table.")],
    new: Annotated[Path, typer.Argument(metavar="NEW", help="The one to compare with it.")],
    as_json: AsJson = False,
) -> None:
    """Say what differs by server, device and rank: exit code 0 where nothing does, 1 where something does.

    Example: msllm ranktable diff last_week.json rank_table.json
    """
    from rank_tables.check import read_table
    from rank_tables.diff import diff as run
    from rank_tables.shape import ORDER

    problems: list[Problem] = []
    tables = []
    for path in (old, new):
        try:
            tables.append(read_table(path, accept=(ORDER,)))
        except InputError as error:
            problems += error.problems
    if problems:
        raise InputError(problems)
    found = run(*tables)
    if as_json:
        print_json({"equal": not found, "differences": [asdict(difference) for difference in found]})
    else:
        for difference in found:
            typer.echo(str(difference))
        typer.echo(f"{len(found)} differences" if found else "no difference")
    raise typer.Exit(1 if found else 0)
