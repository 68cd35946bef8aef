"""What a compiled graph sends over the network: each collective, how often it runs, and over which link."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from msllm.parallel.mesh import Mesh
from msllm.rehearsal.mindir import Program, flatten, parse_model

POINT_TO_POINT = ("Send", "Receive")
COLLECTIVES = ("AllReduce", "AllGather", "ReduceScatter", "AlltoAll", "Broadcast", *POINT_TO_POINT)


def collectives_of(graph: bytes | Any, rank: int) -> list[dict[str, Any]]:
    """The collectives of one rank's graph, in the order of the graph.

    Args:
        graph: the MindIR of the graph, as bytes or parsed.
        rank: whose graph it is.

    Returns:
        Dicts of kind (AllReduce ...); operation (sum, max ... where it reduces, else None); ranks, of the group, or sender and
        receiver; bytes, of the whole tensor: reduced, gathered, before it is scattered, exchanged, sent or received; count, of
        executions in one step; where, the cell that it belongs to.

    Raises:
        RunError: not a MindIR, or a graph whose calls cannot be counted.
    """
    program = Program(parse_model(graph) if isinstance(graph, bytes) else graph)
    executions = program.executions()
    return [
        _describe(program, node, rank, executions[function.name])
        for function in program.graphs
        if executions[function.name]
        for node in function.node
        if program.operation(node) in COLLECTIVES
    ]


def _describe(program: Program, node: Any, rank: int, count: int) -> dict[str, Any]:
    kind, attributes = program.operation(node), program.attributes(node)
    group = group_ranks(attributes)
    payload = sum(tensor.bytes for tensor in program.tensors(node))
    return {
        "kind": kind,
        "operation": attributes.get("op") if kind in ("AllReduce", "ReduceScatter") else None,
        "ranks": [rank, peer_of(attributes)]
        if kind == "Send"
        else [peer_of(attributes), rank]
        if kind == "Receive"
        else group,
        # A node's tensors are those it gives out, of ReduceScatter one share of the whole.
        "bytes": payload * len(group) if kind == "ReduceScatter" else payload,
        "count": count,
        "where": cell_of(node.domain),
    }


def group_ranks(attributes: dict[str, Any]) -> list[int]:
    """The ranks of a collective's group, in its order, from the primitive's attributes."""
    return [int(rank) for rank in flatten(attributes.get("group_rank_ids") or attributes.get("rank_list") or [])]


def peer_of(attributes: dict[str, Any]) -> int:
    """The other rank of a Send or Receive, whose attribute is a place in the group."""
    place = attributes["dest_rank"] if "dest_rank" in attributes else attributes["src_rank"]
    return group_ranks(attributes)[place]


def cell_of(scope: str) -> str:
    """A scope as MindSpore writes it (Default/network-Net/layers-CellList/0-Block/Add-op3) as a path: layers.0.

    The cells around the network are left out, and backward operations are marked as the gradient of their cell.
    """
    parts = [part for part in scope.split("/") if part]
    names = [name for name, _, kind in (part.partition("-") for part in parts) if kind and not kind.startswith("op")]
    inner = len(names) - names[::-1].index("network") if "network" in names else 0
    path = ".".join(names[inner:]) or ".".join(names)
    if "_MirrorMicroStepOperator" in scope or "_MirrorOperator" in scope:
        return "gradients of the weights"
    return f"gradient of {path or 'the network'}" if parts[:1] == ["Gradients"] else path


def axis_of(ranks: Iterable[int], mesh: Mesh) -> str:
    """The axis of the mesh along which a group lies: tensor, data, pipeline, two of them as `data x tensor`, or world.

    A group of all ranks along a single axis is named by it; `none` is a group of one rank.
    """
    ranks = set(ranks)
    places = {"pipeline": mesh.stage, "data": mesh.data_rank, "tensor": mesh.tensor_rank}
    varying = [name for name, place in places.items() if len({place(rank) for rank in ranks}) > 1]
    if len(varying) > 1 and len(ranks) == mesh.size:
        return "world"
    return " x ".join(varying) or "none"


def sent_bytes(kind: str, size: int, payload: int) -> int:
    """Bytes that one rank sends for a collective over `size` ranks by the ring algorithms.

    With n ranks and B bytes of the whole tensor: AllReduce 2 (n-1)/n B, AllGather, ReduceScatter and AlltoAll (n-1)/n B,
    Broadcast and Send B, Receive nothing.
    """
    if kind == "Receive" or size < 2:
        return 0
    if kind in ("Send", "Broadcast"):
        return payload
    return math.ceil((2 if kind == "AllReduce" else 1) * (size - 1) * payload / size)


def summarize(collectives: Iterable[dict[str, Any]], mesh: Mesh, devices_per_server: int) -> list[dict[str, Any]]:
    """What one rank's step communicates, by kind of collective, axis of the mesh and link, the most sent bytes first.

    Args:
        collectives: of `collectives_of`.
        devices_per_server: ranks are laid out on servers in their order, so many on each.

    Returns:
        Dicts of kind; axis (see `axis_of`); link, `inside` a server or `between` servers, the slower of which a group has to
        wait for; number of executions in a step; bytes, their payload; sent, what the rank sends (see `sent_bytes`).
    """
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for collective in collectives:
        kind, ranks, count = collective["kind"], collective["ranks"], collective["count"]
        link = "inside" if len({rank // devices_per_server for rank in ranks}) == 1 else "between"
        axis = axis_of(ranks, mesh)
        row = rows.setdefault(
            (kind, axis, link), {"kind": kind, "axis": axis, "link": link, "number": 0, "bytes": 0, "sent": 0}
        )
        row["number"] += count
        row["bytes"] += count * collective["bytes"]
        row["sent"] += count * sent_bytes(kind, len(ranks), collective["bytes"])
    return sorted(rows.values(), key=lambda row: (-row["sent"], row["kind"], row["axis"], row["link"]))
