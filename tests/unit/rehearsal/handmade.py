"""Hand-made MindIR, and a NumPy interpreter that runs the graphs of several ranks against each other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any

import mindspore  # noqa: F401 - before its protobuf
import numpy as np
from mindspore.train.mind_ir_pb2 import ModelProto

from msllm.rehearsal.mindir import DTYPE_IDS, Builder, Program, TensorType, attribute_value

NUMPY_TYPES = {1: np.float32, 6: np.int32, 7: np.int64, 9: np.bool_, 10: np.float16}
CAST_RESULTS = {43: np.float32, 34: np.int32, 35: np.int64, 42: np.float16}


def tensor(*shape: int, dtype: str = "float32") -> TensorType:
    return TensorType(shape, DTYPE_IDS[dtype])


def model_of(
    inputs: dict[str, TensorType], build: Callable[[Builder], str], scope: str = "Default/network-Net/Op-op0"
) -> Any:
    """A model of one graph: its inputs, and the nodes that `build` adds; returns the value whose name `build` returns."""
    model = ModelProto()
    model.graph.name = "main"
    add_graph(model, model.graph, inputs, build, scope)
    return model


def add_graph(
    model: Any, graph: Any, inputs: dict[str, TensorType], build: Callable[[Builder], str], scope: str = "Default"
) -> None:
    for name, kind in inputs.items():
        graph.input.add(name=name).tensor.add(dims=kind.shape, data_type=kind.dtype)
    nodes: list[Any] = []
    graph.output.add(name=build(Builder(model, nodes, scope)))
    graph.node.extend(nodes)


def collective(
    build: Builder, kind: str, ranks: Sequence[int], value: str, result: TensorType, output: str, **attributes: Any
) -> str:
    """A node of a collective, as MindSpore writes it."""
    name = build.primitive(kind, {"group": "group_" + "_".join(map(str, ranks)), **attributes})
    primitive = next(p for p in build.model.primitives if p.name == name)
    attribute = primitive.attribute.add(name="group_rank_ids")
    attribute.type = attribute.TUPLE
    for rank in ranks:
        attribute.values.add(ints=[rank], type=attribute.INT64)
    return build.tensor(name, [value], result, output)


def run_ranks(
    models: Sequence[Any], inputs: Sequence[dict[str, np.ndarray]], groups: dict[str, list[int]]
) -> list[np.ndarray]:
    """The results of all ranks' rewritten graphs, run in NumPy; AllReduce(sum) is the only collective that it knows."""
    runs = [_run(Program(model), dict(values), groups) for model, values in zip(models, inputs)]
    waiting: dict[int, tuple[Any, np.ndarray]] = {}
    results: dict[int, np.ndarray] = {}

    def advance(rank: int, value: np.ndarray | None) -> None:
        try:
            waiting[rank] = runs[rank].send(value)
        except StopIteration as end:
            results[rank] = end.value

    for rank in range(len(runs)):
        advance(rank, None)
    while waiting:
        keys = [key for key, _ in waiting.values()]
        ready = [key for key in keys if all(rank in waiting and waiting[rank][0] == key for rank in key[1])]
        assert ready, f"deadlock: {keys}"
        key = ready[0]
        total = sum(waiting.pop(rank)[1] for rank in key[1])
        for rank in key[1]:
            advance(rank, total)
    return [results[rank] for rank in range(len(runs))]


def _run(program: Program, values: dict[str, Any], groups: dict[str, list[int]]) -> Generator[Any, Any, np.ndarray]:
    for node in program.model.graph.node:
        operation, name = program.operation(node), node.output[0]
        if operation == "Constant":
            values[name] = _constant(node.attribute[0])
            continue
        arguments = [values[x] for x in node.input]
        if operation == "AllReduce":
            attributes = program.attributes(node)
            assert attributes["op"] == "sum"
            assert arguments[0].dtype in (np.float32, np.float16)
            values[name] = yield (attributes["group"], tuple(groups[attributes["group"]])), arguments[0]
        else:
            values[name] = OPERATIONS[operation](*arguments)
        for tensor in program.tensors(node) if isinstance(values[name], np.ndarray) else ():
            assert (values[name].shape, values[name].dtype) == (tensor.shape, NUMPY_TYPES[tensor.dtype]), node
    return np.asarray(values[program.model.graph.output[0].name])


def _constant(attribute: Any) -> Any:
    if attribute.tensors:
        proto = attribute.tensors[0]
        return np.frombuffer(proto.raw_data, NUMPY_TYPES[proto.data_type]).reshape(tuple(proto.dims))
    if attribute.type == attribute.TUPLE:
        return tuple(value.ints[0] for value in attribute.values)
    return attribute_value(attribute)


OPERATIONS: dict[str, Callable[..., Any]] = {
    "Split": lambda x, axis, count: tuple(np.split(x, count, axis)),
    "TupleGetItem": lambda items, place: items[place],
    "MakeTuple": lambda *items: items,
    "Concat": lambda items, axis: np.concatenate(items, axis),
    "ZerosLike": np.zeros_like,
    "Reshape": lambda x, shape: x.reshape(shape),
    "Cast": lambda x, kind: x.astype(CAST_RESULTS[kind]),
    "Maximum": np.maximum,
    "Minimum": np.minimum,
    "Mul": np.multiply,
    "Add": np.add,
    "Sub": np.subtract,
    "IsFinite": lambda x: np.asarray(np.isfinite(x)),
    "ReduceSum": lambda x, axes, keep, skip: np.asarray(x.sum(axes)),
}
