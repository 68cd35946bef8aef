"""Whether visible devices, rank table and number of ranks are about the same cards."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from msllm.errors import Problem
from rank_tables.table import RankTable, Server

VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"


def visible_devices(environment: Mapping[str, str]) -> tuple[int, ...] | None:
    """Physical ids that processes may use; None where nothing limits them. ValueError for what is no list of ids."""
    text = environment.get(VISIBLE)
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,2}", word) for word in words) or len(set(words)) < len(words):
        raise ValueError(f"{VISIBLE} ({text}) must be different physical ids such as 4,5,6,7")
    return tuple(map(int, words))


def present_devices() -> tuple[int, ...]:
    """Physical ids of the cards that this host shows."""
    names = (re.fullmatch(r"davinci([0-9]+)", path.name) for path in Path("/dev").glob("davinci*"))
    return tuple(sorted(int(match[1]) for match in names if match))


def device_problems(
    environment: Mapping[str, str], local_workers: int, ascend: bool, present: Collection[int]
) -> Iterator[Problem]:
    """This node's visible devices against its ranks and the cards that are there; CPU ranks heed neither."""
    if not ascend:
        return
    try:
        visible = visible_devices(environment)
    except ValueError as error:
        yield Problem(str(error))
        return
    if visible is not None and len(visible) < local_workers:
        yield Problem(
            f"{local_workers} ranks on this node need as many devices, but {VISIBLE} ({environment[VISIBLE]}) shows "
            f"{len(visible)}; name {local_workers} devices or start fewer ranks"
        )
    if not present:
        return
    missing = sorted(set(visible or ()) - set(present))
    if missing:
        yield Problem(
            f"{VISIBLE} ({environment[VISIBLE]}) names device {', '.join(map(str, missing))}, and this host has "
            f"{', '.join(map(str, sorted(present)))} (/dev/davinci*)"
        )
    elif visible is None and len(present) < local_workers:
        yield Problem(
            f"{local_workers} ranks on this node need as many devices, but it has {len(present)} (/dev/davinci*); give "
            "--nodes for several servers, or set parallel_config for fewer ranks"
        )


def table_size_problems(table: RankTable, path: Path, workers: int, nodes: int) -> Iterator[Problem]:
    """The whole table against the job."""
    if table.size != workers:
        yield Problem(
            f"holds {table.size} ranks, but the job has {workers}; make the table for these devices with msllm ranktable "
            "generate, or set parallel_config for as many ranks",
            path,
        )
    elif len(table.servers) != nodes:
        yield Problem(f"holds {len(table.servers)} servers, but the job has {nodes} nodes; --nodes must agree", path)


def server_of_node(table: RankTable, node_rank: int, local_workers: int) -> Server | None:
    """The server that holds this node's first rank."""
    first = node_rank * local_workers
    return next((server for server, device in table.places() if device.rank_id == first), None)


def table_node_problems(
    table: RankTable,
    path: Path,
    node_rank: int,
    local_workers: int,
    environment: Mapping[str, str],
    addresses: Collection[str],
) -> Iterator[Problem]:
    """This node's part of a table that has the right size.

    Args:
        table, path: the table and its file.
        node_rank, local_workers: of this node.
        environment: with the visible devices.
        addresses: of this node's network cards; empty: not known, nothing is compared.
    """
    server = server_of_node(table, node_rank, local_workers)
    if server is None:
        return
    ids = [device.device_id for device in sorted(server.devices, key=lambda device: device.rank_id)]
    if addresses and server.server_id not in addresses:
        yield Problem(
            f"ranks {node_rank * local_workers} to {(node_rank + 1) * local_workers - 1} are on {server.server_id}, but node "
            f"{node_rank} has {', '.join(sorted(addresses))}; start the nodes in the table's order, or make it anew",
            path,
        )
    try:
        visible = visible_devices(environment)
    except ValueError:
        return  # told by device_problems
    if visible is not None and list(visible[:local_workers]) != ids:
        yield Problem(
            f"has device {', '.join(map(str, ids))} on {server.server_id}, but {VISIBLE} is {environment[VISIBLE]}; both must "
            f"name the same devices in the same order",
            path,
        )
