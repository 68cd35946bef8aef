"""From the graph of a simulated Ascend rank to one that a CPU process executes.

MindSpore's CPU collectives (MCCL) know AllReduce(sum) of float32 and float16 on any group, and nothing else on a group that is
not the world. Every other collective of the graph is built from that one:

    AllGather       each rank puts its part at its place among zeros; the sum is the whole
    ReduceScatter   AllReduce, then the rank's own part
    AllReduce(max)  AllGather, then the maximum of the parts
    AlltoAll        AllGather, then this rank's piece of every part
    Send, Receive   AllReduce over the two ranks, to which the receiver adds zeros

They move more bytes than the real ones, which matters on no model that a CPU can run, and give the same numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from msllm.errors import RunError
from msllm.files import write_atomic
from msllm.rehearsal.collectives import cell_of, group_ranks, peer_of
from msllm.rehearsal.mindir import DTYPE_IDS, Builder, Program, TensorType, parse_model

TRANSFER = "transfer_"
"""Names of the groups of transfers begin so; a rank's groups are in the order of its transfers."""
ASCEND_WORLD, CPU_WORLD = "hccl_world_group", "mccl_world_group"
FLOAT32, FLOAT16, BFLOAT16 = DTYPE_IDS["float32"], DTYPE_IDS["float16"], DTYPE_IDS["bfloat16"]
CAST_TYPES = {1: 43, 6: 34, 7: 35, 10: 42}
"""TensorProto.DataType -> the number by which the Cast operation knows the type (MindSpore's TypeId)."""
COMBINE = {"max": "Maximum", "min": "Minimum", "prod": "Mul"}
ASCEND_ONLY = {
    "RmsNorm",
    "RmsNormGrad",
    "FlashAttentionScore",
    "FlashAttentionScoreGrad",
    "PromptFlashAttention",
    "RotaryPositionEmbedding",
    "ApplyRotaryPosEmb",
    "Swiglu",
}
"""Fused operations without a CPU kernel that a layer may use."""


def rewrite(source: Path, target: Path, rank: int) -> dict[str, list[int]]:
    """Write a graph of simulated rank `rank` as a graph for CPU.

    Args:
        source: MindIR of a graph without lazy inline, of elementary operations.
        target: file to write.
        rank: whose graph it is.

    Returns:
        The communication groups that the rank has to create first: name -> ranks.

    Raises:
        RunError: the graph holds something that has no CPU form; with the operation and its cell.
    """
    model = parse_model(source.read_bytes())
    groups = rewrite_model(model, rank)
    write_atomic(target, model.SerializeToString())
    return groups


def rewrite_model(model: Any, rank: int) -> dict[str, list[int]]:
    """`rewrite` of a ModelProto in place."""
    program = Program(model)
    state = _State(rank)
    for graph in program.graphs:
        types = _types(program, graph)
        nodes: list[Any] = []
        for node in graph.node:
            operation = program.operation(node)
            _refuse(operation, node, types)
            if operation == "Constant":
                state.constants.update(node.output)
            if operation in REWRITERS:
                attributes = program.attributes(node)
                REWRITERS[operation](_Site(Builder(model, nodes, node.domain), node, attributes, types, state))
            elif "group" in program.attributes(node):
                raise RunError(f"{_where(operation, node)} has no CPU form; the rehearsal cannot execute this graph")
            else:
                nodes.append(node)
        del graph.node[:]
        graph.node.extend(nodes)
    return state.groups


@dataclass
class _State:
    """What lasts over the collectives of a graph."""

    rank: int
    groups: dict[str, list[int]] = field(default_factory=dict)
    transfers: Counter[tuple[int, int, int]] = field(default_factory=Counter)
    """Transfers so far of each (sender, receiver, tag)."""
    constants: set[str] = field(default_factory=set)
    """Names of values that the graph holds."""


@dataclass
class _Site:
    """One collective to be replaced: its node, and the builder of the nodes that take its place."""

    build: Builder
    node: Any
    attributes: dict[str, Any]
    types: dict[str, TensorType]
    state: _State

    @property
    def input(self) -> str:
        """Name of the value that goes in."""
        return str(self.node.input[0])

    @property
    def output(self) -> str:
        """Name under which the graph knows the value that comes out."""
        return str(self.node.output[0])

    @property
    def result(self) -> TensorType:
        """Type of the value that comes out."""
        return self.types[self.output]

    @property
    def ranks(self) -> list[int]:
        """Ranks of the group."""
        return group_ranks(self.attributes)

    @property
    def place(self) -> int:
        """Of this rank in the group."""
        return self.ranks.index(self.state.rank)

    def group(self) -> str:
        """Name of the group on CPU, which will be created unless it is the world."""
        name = str(self.attributes["group"])
        if name == ASCEND_WORLD:
            return CPU_WORLD
        self.state.groups[name] = self.ranks
        return name


def _all_reduce(site: _Site) -> None:
    combine = COMBINE.get(site.attributes["op"])
    if combine is None:
        _sum(site, site.input, site.result, site.group(), site.output)
        return
    build, kind, value = site.build, site.result, site.input
    if not kind.shape:  # a scalar has no axis to be gathered along
        kind = kind.with_shape((1,))
        value = build.tensor(build.function("Reshape"), [value, build.constant((1,))], kind)
    value, *others = _split(site, _gather(site, value, kind), kind, 0, len(site.ranks))
    for other in others:
        value = build.tensor(build.function(combine), [value, other], kind)
    build.tensor(build.function("Reshape"), [value, build.constant(site.result.shape)], site.result, site.output)


def _all_gather(site: _Site) -> None:
    rows, *rest = site.result.shape
    _gather(site, site.input, site.result.with_shape((rows // len(site.ranks), *rest)), site.output)


def _reduce_scatter(site: _Site) -> None:
    if site.attributes["op"] != "sum":
        raise RunError(f"{_where('ReduceScatter', site.node)} of {site.attributes['op']} has no CPU form, only sum has")
    whole = _whole(site.result, len(site.ranks))
    summed = _sum(site, site.input, whole, site.group())
    _split(site, summed, site.result, 0, len(site.ranks), keep=site.place, output=site.output)


def _all_to_all(site: _Site) -> None:
    count, cut, join = (int(site.attributes[name]) for name in ("split_count", "split_dim", "concat_dim"))
    shape = list(site.result.shape)
    shape[cut] *= count
    shape[join] //= count
    given = site.result.with_shape(shape)
    shape[cut] //= count
    piece = site.result.with_shape(shape)
    parts = _split(site, _gather(site, site.input, given), given, 0, count)
    pieces = [_split(site, part, piece, cut, count, keep=site.place)[0] for part in parts]
    _concatenate(site, pieces, piece, join, site.result, site.output)


def _send(site: _Site) -> None:
    peer = peer_of(site.attributes)
    _sum(site, site.input, site.result, _transfer(site, site.state.rank, peer), site.output)


def _receive(site: _Site) -> None:
    """Add zeros to what the peer sends; where MindSpore orders the Receive after other operations, zeros that depend on them."""
    build, after = site.build, site.input
    zeros = TensorType(site.result.shape, FLOAT32)
    value = build.zeros(zeros)
    if after not in site.state.constants:
        value = build.tensor(build.function("Add"), [value, _nothing_after(site, after)], zeros)
    if site.result.dtype != FLOAT32:
        value = _cast(site, value, site.result)
    peer = peer_of(site.attributes)
    _sum(site, value, site.result, _transfer(site, peer, site.state.rank), site.output)


def _nothing_after(site: _Site, after: str) -> str:
    """A zero that is computed from a node's input. A Depend on a constant would be optimized away; IsFinite keeps it zero where
    that input is not a number."""
    build = site.build
    if after not in site.types:
        raise RunError(f"{_where('Receive', site.node)}: the order of its input {after} cannot be kept on CPU")
    before, scalar = site.types[after], TensorType((), FLOAT32)
    axes = build.constant(tuple(range(len(before.shape))))
    flag = build.constant(False)
    total = build.tensor(build.function("ReduceSum"), [after, axes, flag, flag], before.with_shape(()))
    finite = build.tensor(build.primitive("IsFinite"), [total], TensorType((), DTYPE_IDS["bool"]))
    number = _cast(site, finite, scalar)
    return build.tensor(build.function("Sub"), [number, number], scalar)


REWRITERS: dict[str, Callable[[_Site], None]] = {
    "AllReduce": _all_reduce,
    "AllGather": _all_gather,
    "ReduceScatter": _reduce_scatter,
    "AlltoAll": _all_to_all,
    "Send": _send,
    "Receive": _receive,
}


def _transfer(site: _Site, sender: int, receiver: int) -> str:
    """A two-rank group of its own for each transfer, so that transfers cannot be taken for one another."""
    key = (sender, receiver, int(site.attributes["sr_tag"]))
    name = TRANSFER + "{}_{}_{}_{}".format(*key, site.state.transfers[key])
    site.state.transfers[key] += 1
    site.state.groups[name] = sorted((sender, receiver))
    return name


def _sum(site: _Site, value: str, kind: TensorType, group: str, output: str | None = None) -> str:
    """AllReduce(sum). Integers travel as float32, exact below 2**24: token ids, counts and flags are."""
    if kind.dtype not in (FLOAT32, FLOAT16):
        floats = TensorType(kind.shape, FLOAT32)
        return _cast(site, _sum(site, _cast(site, value, floats), floats, group), kind, output)
    attributes: dict[str, str | int | bool] = {
        "group": group,
        "op": "sum",
        "fusion": 0,
        "index": 0,
        "no_eliminate": True,
    }
    return site.build.tensor(site.build.primitive("AllReduce", attributes), [value], kind, output)


def _gather(site: _Site, value: str, kind: TensorType, output: str | None = None) -> str:
    """AllGather along axis 0: the sum over ranks of each rank's part at its place among zeros."""
    whole = _whole(kind, len(site.ranks))
    zeros = site.build.tensor(site.build.function("ZerosLike"), [value], kind)
    parts = [value if place == site.place else zeros for place in range(len(site.ranks))]
    return _sum(site, _concatenate(site, parts, kind, 0, whole), whole, site.group(), output)


def _concatenate(
    site: _Site, parts: list[str], kind: TensorType, axis: int, whole: TensorType, output: str | None = None
) -> str:
    build = site.build
    packed = build.tensors(build.primitive("MakeTuple"), parts, [kind] * len(parts))
    return build.tensor(build.function("Concat"), [packed, build.constant(axis)], whole, output)


def _split(
    site: _Site, value: str, part: TensorType, axis: int, count: int, keep: int | None = None, output: str | None = None
) -> list[str]:
    """The `count` parts of a value along an axis, or the one at place `keep`."""
    build = site.build
    arguments = [value, build.constant(axis), build.constant(count)]
    parts = build.tensors(build.function("Split"), arguments, [part] * count)
    places = range(count) if keep is None else [keep]
    take = build.primitive("TupleGetItem")
    return [build.tensor(take, [parts, build.constant(place)], part, output) for place in places]


def _cast(site: _Site, value: str, kind: TensorType, output: str | None = None) -> str:
    if kind.dtype not in CAST_TYPES:
        raise RunError(
            f"{_where(site.attributes['group'], site.node)}: no CPU form for tensors of MindIR type {kind.dtype}"
        )
    cast = site.build.function("Cast")
    return site.build.tensor(cast, [value, site.build.constant(CAST_TYPES[kind.dtype])], kind, output)


def _whole(part: TensorType, count: int) -> TensorType:
    return part.with_shape((part.shape[0] * count, *part.shape[1:]))


def _types(program: Program, graph: Any) -> dict[str, TensorType]:
    """The type of every tensor in a graph by name: inputs, parameters, and nodes that give one tensor out."""
    types = {q.name: TensorType(tuple(q.dims), q.data_type) for q in program.model.graph.parameter}
    types |= {q.name: TensorType(tuple(q.tensor[0].dims), q.tensor[0].data_type) for q in graph.input if q.tensor}
    for node in graph.node:
        tensors = program.tensors(node)
        if len(tensors) == 1:
            types[node.output[0]] = tensors[0]
    return types


def _refuse(operation: str, node: Any, types: dict[str, TensorType]) -> None:
    """Raise for what no rewriting helps with."""
    if operation == "call":
        raise RunError(
            f"{_where('a call', node)}: a graph with cell reuse (lazy inline) cannot be executed on CPU; export it without"
        )
    if operation in ASCEND_ONLY:
        raise RunError(f"{_where(operation, node)} runs on Ascend alone; build the model from elementary operations")
    kind = types.get(node.output[0])
    if kind is not None and kind.dtype == BFLOAT16:
        raise RunError(
            f"{_where(operation, node)} gives bfloat16, for which CPU has no kernels; use compute_dtype: float32"
        )


def _where(operation: str, node: Any) -> str:
    return f"{operation} in {cell_of(node.domain) or 'the training step'}"
