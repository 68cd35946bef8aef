"""What shows before a job starts, on the node that it is asked on: every problem at once."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msllm.config.sections import RunConfig
from msllm.errors import InputError, Problem
from msllm.launch import devices, network, variables
from msllm.launch.options import Options
from msllm.launch.plan import Job
from msllm.launch.waiting import longest_wait
from rank_tables.check import read_table
from rank_tables.hosts import Host
from rank_tables.table import RankTable

MASTER_PORT = 8118
"""As msrun's."""

SAVE_ON_STOP = ("--callback", "msllm.training.stop_when_asked:StopWhenAsked")


@dataclass
class Preflight:
    """A job as this node sees it, and all that is wrong with it."""

    job: Job
    settings: list[variables.Setting] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    may_join: bool = False
    """Whether the other nodes can be told of the problems: there are some, and this one knows its place among them."""


def msllm_command() -> tuple[str, ...]:
    """How this installation's command is called on a node."""
    return sys.executable, str(Path(sys.executable).with_name("msllm"))


def rank_command() -> tuple[str, ...]:
    """What every rank runs, before the options of the run."""
    return (*msllm_command(), "train")


def prepare(
    options: Options,
    config: RunConfig | None,
    ascend: bool,
    environment: Mapping[str, str],
    hosts: Sequence[Host] = (),
    here: bool = True,
) -> Preflight:
    """Lay out the job and check it.

    Args:
        options: of the command.
        config: of the run; None where it is wrong, which is told elsewhere.
        ascend: whether the run is on NPUs.
        environment: of this process.
        hosts: of the host file; empty without one.
        here: whether this host is the node that is asked about: ports, addresses and devices can be looked at.
    """
    problems: list[Problem] = []
    nodes = len(hosts) or options.nodes or 1
    workers = _workers(options, config, nodes, problems)
    address = _master_address(options, nodes, hosts, problems)
    table = _table(options, workers, nodes, problems)
    node_rank = _node_rank(options, nodes, hosts, problems)
    ports = _ports(options, nodes, address, here)
    job = Job(
        workers=workers,
        command=(*rank_command(), *options.train, *options.more, *(SAVE_ON_STOP if options.save_on_stop else ())),
        output=options.output,
        resume=options.resume,
        nodes=nodes,
        node_rank=node_rank,
        master_addr=address or "127.0.0.1",
        master_port=ports[0],
        control_port=ports[1],
        start=options.start,
        rank_table=options.rank_table,
        first_log=next_log(options.output),
        device_ids=_device_ids(table, node_rank, workers // nodes, environment),
    )
    placed = nodes > 1 and address is not None and options.node_rank == node_rank
    found = Preflight(job, problems=problems, may_join=placed)
    if table is not None:
        problems += _host_order(table, hosts, options.rank_table)
    _check_environment(found, config, ascend, environment)
    if here and not hosts:
        _check_node(found, table, ascend, environment, address is not None)
    return found


def next_log(output: Path) -> int:
    """The first number of an attempt that has no logs yet."""
    numbers = [re.fullmatch("attempt_([0-9]+)", path.name) for path in (output / "launch").glob("attempt_*")]
    return max((int(match[1]) + 1 for match in numbers if match), default=0)


def _workers(options: Options, config: RunConfig | None, nodes: int, problems: list[Problem]) -> int:
    needed = config.parallel_config.device_num if config else None
    workers = options.workers or needed or nodes
    if needed is not None and workers != needed:
        problems.append(
            Problem(
                f"--workers ({workers}) must be the {needed} ranks that parallel_config needs; leave it out, or set "
                f"parallel_config for {workers}"
            )
        )
    if workers % nodes:
        problems.append(
            Problem(
                f"{workers} ranks cannot be spread evenly over {nodes} nodes; every node has the same number of ranks"
            )
        )
    return max(workers, nodes)


def _master_address(options: Options, nodes: int, hosts: Sequence[Host], problems: list[Problem]) -> str | None:
    """Of node 0, as an IP address; None where it is wrong."""
    given = options.master_addr or (hosts[0].server_id if hosts else None)
    if given is None:
        if nodes > 1:
            problems.append(Problem("--master-addr is missing: the address of node 0, the same on every node"))
            return None
        return "127.0.0.1"
    try:
        address = network.resolve(given)
    except ValueError as error:
        problems.append(Problem(str(error)))
        return None
    if nodes > 1 and address.startswith("127."):
        problems.append(
            Problem(
                f"--master-addr {given} is {address}, which means another host on every node; give the address that the other "
                f"nodes reach node 0 by (a line of /etc/hosts may say 127.0.1.1)"
            )
        )
        return None
    return address


def _node_rank(options: Options, nodes: int, hosts: Sequence[Host], problems: list[Problem]) -> int:
    if options.node_rank is None:
        if nodes > 1 and not hosts:
            problems.append(
                Problem(f"--node-rank is missing: this node's number, from 0 to {nodes - 1} (in Slurm: $SLURM_NODEID)")
            )
        return 0
    if not 0 <= options.node_rank < nodes:
        problems.append(
            Problem(
                f"--node-rank ({options.node_rank}) must be from 0 to {nodes - 1}, as there are {nodes} nodes (--nodes)"
            )
        )
        return 0
    return options.node_rank


def _table(options: Options, workers: int, nodes: int, problems: list[Problem]) -> RankTable | None:
    path = options.rank_table
    if path is None:
        if options.start == "rank-table":
            problems.append(Problem("--start rank-table needs --rank-table FILE; msllm ranktable generate makes one"))
        return None
    try:
        table = read_table(path)
    except InputError as error:
        problems += error.problems
        return None
    wrong = list(devices.table_size_problems(table, path, workers, nodes))
    problems += wrong
    return None if wrong else table


def _device_ids(
    table: RankTable | None, node_rank: int, local_workers: int, environment: Mapping[str, str]
) -> tuple[int, ...] | None:
    """Physical ids of this node's ranks; None where the visible devices count from 0."""
    if table is None or devices.VISIBLE in environment:
        return None
    server = devices.server_of_node(table, node_rank, local_workers)
    if server is None:
        return None
    ordered = sorted(server.devices, key=lambda device: device.rank_id)
    return tuple(device.device_id for device in ordered)


def _ports(options: Options, nodes: int, address: str | None, here: bool) -> tuple[int, int]:
    """Of MindSpore's scheduler and of the launcher; what the user leaves out on one host is made free."""
    master = options.master_port
    if master is None:
        master = MASTER_PORT
        if nodes == 1 and here and list(network.port_problems("127.0.0.1", {"": master})):
            master = network.free_port()
    control = options.control_port or (network.free_port() if nodes == 1 and here else master + 1)
    return master, control


def _host_order(table: RankTable, hosts: Sequence[Host], path: Path | None) -> list[Problem]:
    """Nodes are numbered in the order of the host file, ranks in that of the table."""
    listed = [host.server_id for host in hosts]
    order = list(dict.fromkeys(server.server_id for server, _ in table.places()))
    if not hosts or listed == order:
        return []
    return [
        Problem(
            f"has its ranks on {', '.join(order)}, in this order, but the hosts are {', '.join(listed)}; list the hosts in the "
            "table's order, which is the dictionary order of server_id",
            path,
        )
    ]


def _check_environment(
    found: Preflight, config: RunConfig | None, ascend: bool, environment: Mapping[str, str]
) -> None:
    job = found.job
    inside = [name for name in ("MS_ROLE", "MS_SCHED_HOST") if name in environment]
    if inside:
        found.problems.append(
            Problem(
                f"{inside[0]} is set ({environment[inside[0]]}): this is the environment of a rank; start msllm launch by "
                "itself, not under msrun, or unset the variable"
            )
        )
    needed = variables.Needed(0.0, "")
    if config is not None and job.workers > 1 and ascend:
        needed = longest_wait(config, job.output)
    chip = config.training.chip if config else None
    found.problems += variables.environment_problems(environment, chip, needed)
    found.notes += variables.advice(environment, job.workers)
    found.settings = variables.recipe(environment, job.workers, ascend, chip, needed)
    values = {setting.name: setting.value for setting in found.settings}
    topo = values.get("MS_TOPO_TIMEOUT", "")
    found.job = replace(job, settings=values, topo_timeout=int(topo) if topo.isdecimal() else job.topo_timeout)


def _check_node(
    found: Preflight, table: RankTable | None, ascend: bool, environment: Mapping[str, str], addressed: bool
) -> None:
    """What only the node itself can see."""
    job = found.job
    if job.node_rank == 0 and addressed:
        ports = {"--control-port": job.control_port}
        if job.has_scheduler:
            ports = {"--master-port": job.master_port} | ports
        if job.master_port == job.control_port:
            found.problems.append(
                Problem(f"--master-port and --control-port are both {job.master_port}; they must differ")
            )
        found.problems += network.port_problems(job.master_addr, ports)
    if ascend and job.workers > 1:
        found.problems += network.hccl_port_problems(environment)
    if job.start == "rank-table" and not ascend:
        found.problems.append(
            Problem("--start rank-table is for NPUs: CPU ranks find each other by MindSpore's scheduler; leave it out")
        )
    present = devices.present_devices()
    found.problems += devices.device_problems(environment, job.local_workers, ascend, present)
    if table is not None and job.rank_table is not None:
        addresses = network.local_addresses() if ascend else set()
        found.problems += devices.table_node_problems(
            table, job.rank_table, job.node_rank, job.local_workers, environment, addresses
        )


def host_problems(hosts: Sequence[Host], local_workers: int) -> list[Problem]:
    """Hosts of a host file that cannot be the nodes of a job."""
    found = []
    seen: dict[str, Host] = {}
    for host in hosts:
        if host.server_id in seen:
            found.append(host.problem(f"{host.server_id} is listed twice"))
        seen[host.server_id] = host
        if host.slots is not None and host.slots < local_workers:
            found.append(
                host.problem(
                    f"has {host.slots} slots, but every node gets {local_workers} ranks; the nodes of a job are equal"
                )
            )
    return found
