"""`msllm launch`: the ranks of a job, checked before they start and watched until they end."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msllm.commands.options import AsJson, ConfigFiles, Overrides, ParallelFile, load_from_options, print_json
from msllm.commands.train import Output, Resume
from msllm.errors import InputError, MsllmError, Problem, RunError
from msllm.launch.options import SSH

if TYPE_CHECKING:
    from msllm.config.origin import LoadedConfig
    from msllm.launch.channel import Message
    from msllm.launch.options import Options
    from msllm.launch.preflight import Preflight
    from rank_tables.hosts import Host

STOPPED = 130


class Stopped(MsllmError):
    """The job was stopped by a signal."""

    exit_code = STOPPED


class StartWay(str, Enum):
    """How ranks find each other."""

    dynamic = "dynamic"
    rank_table = "rank-table"


def launch(
    context: typer.Context,
    config: ConfigFiles,
    output: Output,
    parallel: ParallelFile = None,
    overrides: Overrides = None,
    resume: Resume = "no",
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", "--devices", "-n", min=1, help="Ranks of all nodes; left out: as parallel_config needs."
        ),
    ] = None,
    hosts: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Servers, as for msllm ranktable: lines `host ip slots`; started over ssh."),
    ] = None,
    ssh: Annotated[str, typer.Option(metavar="COMMAND", help="With --hosts: how a shell line is run on {host}.")] = SSH,
    nodes: Annotated[
        int | None, typer.Option(min=1, help="Servers of the job, where each starts its own launcher.")
    ] = None,
    node_rank: Annotated[int | None, typer.Option(help="Number of this server, from 0.")] = None,
    master_addr: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Of node 0.")] = None,
    master_port: Annotated[
        int | None,
        typer.Option(min=1024, max=65535, help="MindSpore's scheduler; left out: 8118, on one node a free one."),
    ] = None,
    control_port: Annotated[
        int | None, typer.Option(min=1024, max=65535, help="Node 0's launcher; left out: --master-port plus 1.")
    ] = None,
    start: Annotated[
        StartWay, typer.Option(help="dynamic: as msrun, by a scheduler. rank-table: by --rank-table alone (Ascend).")
    ] = StartWay.dynamic,
    rank_table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Checked, and given to all ranks as RANK_TABLE_FILE.")
    ] = None,
    max_restarts: Annotated[
        int, typer.Option(min=0, help="Starts after a failure, each from the newest complete checkpoint.")
    ] = 0,
    save_on_stop: Annotated[
        bool, typer.Option("--save-on-stop", help="Ctrl-C and SIGTERM save a checkpoint first.")
    ] = False,
    hang_timeout: Annotated[
        float | None, typer.Option(min=1, help="Seconds without any progress that end the job; left out: never.")
    ] = None,
    join_timeout: Annotated[float, typer.Option(min=1, help="Seconds until all nodes must have come.")] = 300.0,
    node_timeout: Annotated[
        float, typer.Option(min=2, help="Seconds without a sign of a node that end the job.")
    ] = 30.0,
    log_mb: Annotated[
        int, typer.Option(min=1, help="A rank's log is rotated at this size; 3 older ones are kept.")
    ] = 64,
    show_all: Annotated[bool, typer.Option("--show-all", help="Show what all ranks print, not rank 0 alone.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what each node would run, and run nothing.")
    ] = False,
    watch_stdin: Annotated[bool, typer.Option("--watch-stdin", hidden=True)] = False,
    as_json: AsJson = False,
) -> None:
    """Train on several devices: check everything first, watch every rank, end all when one fails.

    One server:      msllm launch -c my.yaml -p parallel_configs/llama2_7b_8p_dp2_mp4.yaml --output runs/a

    Several, by ssh: msllm launch -c my.yaml -p my_16p.yaml --output /shared/runs/a --hosts hosts.txt --max-restarts 3

    One command per server (Slurm and others): msllm launch ... --nodes 2 --node-rank $SLURM_NODEID --master-addr node0

    What stands after -- goes to msllm train. Exit codes: 0 done, 1 failed, 2 wrong input, 130 stopped.
    """
    from msllm.launch.options import Options

    train = _train_arguments(config, parallel, overrides or [], output, context.args)
    options = Options(
        train=tuple(train),
        more=tuple(context.args),
        output=output.absolute(),
        resume=resume,
        workers=workers,
        nodes=nodes,
        node_rank=node_rank,
        master_addr=master_addr,
        master_port=master_port,
        control_port=control_port,
        hosts=hosts,
        ssh=ssh,
        start=start.value,
        rank_table=_table(rank_table),
        max_restarts=max_restarts,
        save_on_stop=save_on_stop,
        hang_timeout=hang_timeout,
        join_timeout=join_timeout,
        node_timeout=node_timeout,
        log_mb=log_mb,
        show_all=show_all,
        as_json=as_json,
    )
    loaded, problems = _load(config, parallel, overrides)
    listed = _hosts(options, problems)
    ascend = _is_ascend(loaded)
    found = _preflight(options, loaded, ascend, listed, problems, dry_run)
    if dry_run:
        if found.problems:
            raise InputError(found.problems)
        _print_plan(found, options, listed, as_json)
    elif listed:
        if found.problems:
            raise InputError(found.problems)
        _run_hosts(listed, options)
    else:
        _run_node(found, options, loaded, watch_stdin)


def _train_arguments(
    config: Sequence[Path], parallel: Path | None, overrides: Sequence[str], output: Path, more: Sequence[str]
) -> list[str]:
    words = [word for path in config for word in ("--config", str(path.absolute()))]
    words += ["--parallel", str(parallel.absolute())] if parallel else []
    words += [word for override in overrides for word in ("--set", override)]
    taken = [
        word
        for word in more
        if word.split("=")[0] in ("--config", "-c", "--parallel", "-p", "--set", "-s", "--output", "-o", "--resume")
    ]
    if taken:
        raise InputError(f"{taken[0]} stands after --; give it to msllm launch itself, before --")
    if more and not more[0].startswith("-"):
        raise InputError(f"unexpected argument {more[0]}; options of msllm train stand after --")
    return [*words, "--output", str(output.absolute())]


def _table(option: Path | None) -> Path | None:
    """The rank table: --rank-table, or that of the environment, which the ranks would use as well."""
    given = str(option) if option else os.environ.get("RANK_TABLE_FILE")
    return Path(given).absolute() if given else None


def _load(
    config: list[Path], parallel: Path | None, overrides: list[str] | None
) -> tuple[LoadedConfig | None, list[Problem]]:
    try:
        return load_from_options(config, parallel, overrides), []
    except InputError as error:
        return None, list(error.problems)


def _is_ascend(loaded: LoadedConfig | None) -> bool:
    from msllm.parallel.world import resolve_device_target

    return loaded is not None and resolve_device_target(loaded.config.training.device_target) == "Ascend"


def _hosts(options: Options, problems: list[Problem]) -> tuple[Host, ...]:
    if options.hosts is None:
        return ()
    from msllm.commands.host_file import read_hosts

    own = {"--nodes": options.nodes, "--node-rank": options.node_rank, "--master-addr": options.master_addr}
    clash = [name for name, value in own.items() if value is not None]
    if clash:
        problems.append(Problem(f"{' and '.join(clash)}: --hosts says it for all nodes; leave it out"))
    try:
        return read_hosts(options.hosts).hosts
    except InputError as error:
        problems += error.problems
        return ()


def _preflight(
    options: Options,
    loaded: LoadedConfig | None,
    ascend: bool,
    listed: tuple[Host, ...],
    problems: list[Problem],
    dry_run: bool,
) -> Preflight:
    """All that is wrong, as this host sees it: with --hosts, the nodes look for themselves."""
    from msllm.commands.train import check
    from msllm.launch.preflight import host_problems, prepare

    found = prepare(options, loaded.config if loaded else None, ascend, os.environ, listed, here=not dry_run)
    found.problems = [*problems, *found.problems, *host_problems(listed, found.job.local_workers)]
    if loaded is not None and not listed:
        try:
            check(loaded, loaded.config.parallel_config.device_num)
        except InputError as error:
            found.problems += error.problems
        found.problems += _resume_problems(options, dry_run)
    return found


def _resume_problems(options: Options, dry_run: bool) -> list[Problem]:
    """What msllm train would say of --output and --resume, but for damaged checkpoints, which it looks for itself."""
    from msllm.training.run_directory import RunDirectory

    directory = RunDirectory(options.output)
    if not dry_run:
        try:
            directory.create()
        except InputError as error:
            return list(error.problems)
    if options.resume == "no" and directory.has_run():
        return [
            Problem(
                "holds a run already; add --resume auto to go on with it, or choose another --output", options.output
            )
        ]
    if options.resume not in ("no", "auto") and not Path(options.resume).is_dir():
        return [Problem("no such checkpoint folder; --resume takes no, auto or a checkpoint's folder", options.resume)]
    return []


def _print_plan(found: Preflight, options: Options, listed: tuple[Host, ...], as_json: bool) -> None:
    from msllm.launch.hosts import remotes
    from msllm.launch.network import host_name
    from msllm.launch.recipe_files import describe, node_text

    started = remotes(listed, options, os.getcwd(), os.environ) if listed else []
    added = {s.name: s.value for s in found.settings if os.environ.get(s.name) != s.value}
    shown: list[dict[str, Any]] = []
    for node_rank in range(found.job.nodes) if listed else [found.job.node_rank]:
        job = replace(found.job, node_rank=node_rank)
        remote = shlex.join(started[node_rank].command) if started else None
        name = listed[node_rank].name if listed else host_name()
        shown.append({"host": name, "remote": list(started[node_rank].command) if started else None, **describe(job)})
        if not as_json:
            typer.echo(node_text(job, added, name, remote))
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)
    if as_json:
        print_json({"nodes": shown, "notes": found.notes})


def _run_hosts(listed: tuple[Host, ...], options: Options) -> None:
    from msllm.launch.hosts import remotes, run
    from msllm.launch.screen import Screen

    code, output = run(remotes(listed, options, os.getcwd(), os.environ), Screen().line)
    if code == STOPPED:
        raise Stopped("stopped, as node 0 has said")
    typer.echo(output.decode(errors="replace"), nl=False)
    raise typer.Exit(code)


def _run_node(found: Preflight, options: Options, loaded: LoadedConfig | None, watch_stdin: bool) -> None:
    from msllm.launch.agreement import Hello, mark_of, versions
    from msllm.launch.coordinator import Coordinator
    from msllm.launch.network import host_name, listen
    from msllm.launch.node import Node
    from msllm.launch.recipe_files import write_recipe
    from msllm.launch.screen import Screen

    job = found.job
    if found.problems and not found.may_join:
        raise InputError(found.problems)
    identity = _identity(found, options, loaded)
    hello = Hello(job.node_rank, host_name(), "", versions(os.environ), identity, tuple(map(str, found.problems)))
    if not found.problems:
        folder = write_recipe(job, found.settings, hello)
        hello = replace(hello, folder=mark_of(folder.parent) if job.nodes > 1 else None)
    screen = Screen(f"[node {job.node_rank}] " if job.nodes > 1 else "")
    for note in found.notes:
        screen.say(f"note: {note}")
    for problem in found.problems:  # before the others, who may come late, have been told of it
        screen.say(f"wrong here: {problem}")
    coordinator = None
    if job.node_rank == 0:
        from msllm.launch.conductor import Limits

        try:
            listener = listen(job.master_addr, job.control_port)
        except OSError as error:
            raise InputError(
                found.problems or f"--control-port {job.control_port} on {job.master_addr}: {error.strerror}"
            ) from None
        limits = Limits(
            options.join_timeout, options.node_timeout, hang=options.hang_timeout, restarts=options.max_restarts
        )
        coordinator = Coordinator(
            listener,
            job.nodes,
            job.workers,
            limits,
            screen.say,
            screen.status,
            lambda: _newest(options.output),
            job.first_log,
        )
    node = Node(
        job, hello, screen.line, screen.say, options.node_timeout, options.join_timeout, options.save_on_stop,
        options.log_mb << 20, options.show_all, watch_stdin,
    )  # fmt: skip
    ended = node.run()
    if coordinator is not None:
        coordinator.join()
    screen.end()
    _finish(ended, options, screen.say)


def _identity(found: Preflight, options: Options, loaded: LoadedConfig | None) -> dict[str, Any]:
    """What all nodes must have been given alike."""
    job = found.job
    same: dict[str, Any] = {
        "--nodes": job.nodes,
        "ranks": job.workers,
        "--master-port": job.master_port if job.nodes > 1 else None,
        "--start": job.start,
        "--resume": job.resume,
        "--save-on-stop": options.save_on_stop,  # adds a callback, and callbacks add an AllReduce
        "the options after --": list(options.more),
    }
    sections = loaded.config.to_dict() if loaded else {}
    for section, values in sections.items():
        same.update({f"{section}.{key}": value for key, value in values.items()})
    return same


def _newest(output: Path) -> str | None:
    from msllm.checkpoint.state import complete_checkpoints

    found = complete_checkpoints(output / "checkpoints")
    return str(found[-1]) if found else None


def _finish(ended: Message, options: Options, say: Any) -> None:
    """Say how the job ended, and end with its exit code."""
    code, failure = int(ended["code"]), ended.get("failure")
    if code == InputError.exit_code and ended["problems"]:
        raise InputError(ended["problems"])
    if failure is not None:
        if code == InputError.exit_code:
            raise InputError(failure["message"])
        raise RunError(failure["message"])
    newest = _newest(options.output)
    if code == STOPPED:
        raise Stopped(
            f"stopped by {ended.get('stopped_by')}; "
            + (f"last checkpoint: {newest}" if newest else "there is no checkpoint")
        )
    if options.as_json:
        print_json({"run": str(options.output), "attempts": ended["attempts"], "checkpoint": newest})
    else:
        say(f"done; {newest}")
