"""MindIR, the protobuf that MindSpore writes a compiled graph to: reading it, and building new nodes for it.

A model is a main graph and functions, both of nodes in execution order. A node refers to what it runs by name: a primitive of
the model, one of its functions, or an earlier node whose value is a function. Nodes are known by the name of their output.

`mindspore.train.mind_ir_pb2` is imported inside functions, as every import of MindSpore; protobuf itself is never imported, as
MindSpore must load its own first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msllm.errors import RunError

REFERENCE = "REF::"
CONSTANT = "Constant"
DTYPE_IDS = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10, "bfloat16": 16}
"""MindIR's own numbers of the types that a graph may hold (TensorProto.DataType)."""
ITEM_BYTES = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 14: 8, 15: 16, 16: 2, 17: 8}
"""Bytes of an element of every TensorProto.DataType of a fixed size."""


@dataclass(frozen=True)
class TensorType:
    """Shape and type of a tensor in a graph."""

    shape: tuple[int, ...]
    dtype: int
    """A TensorProto.DataType."""

    @property
    def bytes(self) -> int:
        """Size in memory."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def with_shape(self, shape: Sequence[int]) -> TensorType:
        """The same type in another shape."""
        return TensorType(tuple(shape), self.dtype)


def parse_model(source: bytes) -> Any:
    """The ModelProto of a MindIR file's content.

    Raises:
        RunError: it is none.
    """
    import mindspore  # noqa: F401 - loads its own protobuf first
    from mindspore.train.mind_ir_pb2 import ModelProto

    model = ModelProto()
    try:
        model.ParseFromString(source)
    except Exception as error:  # DecodeError is protobuf's, which is not to be imported here
        raise RunError(f"not a MindIR: {error}") from None
    if not model.graph.node:
        raise RunError("not a MindIR: it has no graph")
    return model


def attribute_value(attribute: Any) -> Any:
    """The value of an AttributeProto: a number, a text, a list of them, or the TensorType of a tensor."""
    for field in ("s", "i", "f"):
        if attribute.HasField(field):
            value = getattr(attribute, field)
            return value.decode() if isinstance(value, bytes) else value
    if attribute.ints:
        return list(attribute.ints)
    if attribute.strings:
        return [text.decode() for text in attribute.strings]
    if attribute.values:
        return [attribute_value(value) for value in attribute.values]
    if attribute.tensors:
        return [tensor_type(tensor) for tensor in attribute.tensors]
    return None


def tensor_type(tensor: Any) -> TensorType:
    """Shape and type of a TensorProto."""
    return TensorType(tuple(tensor.dims), tensor.data_type)


def flatten(value: Any) -> list[Any]:
    """The leaves of nested lists."""
    return [leaf for item in value for leaf in flatten(item)] if isinstance(value, list) else [value]


def named_attributes(attributes: Iterable[Any]) -> dict[str, Any]:
    """AttributeProtos as a dict."""
    return {attribute.name: attribute_value(attribute) for attribute in attributes}


class Program:
    """A model with its primitives, functions and nodes by name."""

    def __init__(self, model: Any):
        self.model = model
        self.graphs = [model.graph, *model.functions]
        self.functions = {function.name: function for function in model.functions}
        self.primitives = {primitive.name: primitive for primitive in model.primitives}
        self._nodes = {node.output[0]: (node, graph) for graph in self.graphs for node in graph.node}

    def operation(self, node: Any) -> str:
        """The kind of a node: an operation such as AllReduce, `Constant`, or `call` for what is not a primitive."""
        if node.op_type == CONSTANT:
            return CONSTANT
        primitive = self.primitives.get(node.op_type.removeprefix(REFERENCE))
        return primitive.op_type if primitive is not None else "call"

    def attributes(self, node: Any) -> dict[str, Any]:
        """The attributes of a node's primitive."""
        primitive = self.primitives.get(node.op_type.removeprefix(REFERENCE))
        return named_attributes(primitive.attribute) if primitive is not None else {}

    def tensors(self, node: Any) -> list[TensorType]:
        """The tensors that a node gives out; none where MindSpore has not noted them."""
        shapes = [attribute for attribute in node.attribute if attribute.name == "shape"]
        return [leaf for shape in shapes for leaf in flatten(attribute_value(shape)) if isinstance(leaf, TensorType)]

    def executions(self) -> Counter[str]:
        """How often one run of the model executes each graph, by the graph's name.

        With lazy inline a network is one function that every micro batch calls; its backward pass is a closure that the
        forward call returns. Functions that nobody calls have no entry.

        Raises:
            RunError: a call whose function cannot be told from the graph.
        """
        calls = {graph.name: list(self._called(graph)) for graph in self.graphs}
        total: Counter[str] = Counter()
        pending = [self.model.graph.name]
        while pending:
            name = pending.pop()
            total[name] += 1
            pending.extend(calls[name])
        return total

    def _called(self, graph: Any) -> Iterator[str]:
        for node in graph.node:
            if self.operation(node) == "call":
                yield self._function(node.op_type.removeprefix(REFERENCE), node)

    def _function(self, name: str, caller: Any) -> str:
        """The function that a name stands for: itself, or the one in the value of a node."""
        if name in self.functions:
            return name
        node, _ = self._nodes.get(name, (None, None))
        operation = self.operation(node) if node is not None else None
        if operation in ("Partial", "Depend"):
            return self._function(node.input[0], caller)
        if operation == "TupleGetItem":
            part = self._element(node.input[0], self._constant(node.input[1]))
            if part is not None:
                return self._function(part, caller)
        raise RunError(
            f"cannot tell which function {caller.output[0]} calls ({caller.op_type}): its collectives cannot be counted"
        )

    def _element(self, name: str, index: int) -> str | None:
        """The name of an element of a tuple: of a MakeTuple, or of one that a called function returns."""
        node, _ = self._nodes.get(name, (None, None))
        operation = self.operation(node) if node is not None else None
        if operation == "MakeTuple":
            return node.input[index]
        if operation == "Depend":
            return self._element(node.input[0], index)
        if operation == "call":
            function = self.functions[self._function(node.op_type.removeprefix(REFERENCE), node)]
            return self._element(function.output[0].name, index)
        return None

    def _constant(self, name: str) -> Any:
        """The value of a Constant."""
        return attribute_value(self._nodes[name][0].attribute[0])


class Builder:
    """Appends nodes to a list that will become a graph's; new primitives go to the model. Every method returns a name."""

    def __init__(self, model: Any, nodes: list[Any], scope: str = "Default"):
        self.model, self.nodes, self.scope = model, nodes, scope

    def constant(self, value: bool | int | tuple[int, ...]) -> str:
        """A number or a tuple of integers, as operations take for arguments."""
        node, attribute = self._new_constant()
        if isinstance(value, tuple):
            attribute.type = attribute.TUPLE
            for item in value:
                attribute.values.add(ints=[item], type=attribute.INT64)
        else:
            attribute.type = attribute.BOOL if isinstance(value, bool) else attribute.INT64
            attribute.i = int(value)
        return node.name

    def zeros(self, kind: TensorType) -> str:
        """A constant tensor of zeros, whose bytes are zero in every type."""
        node, attribute = self._new_constant()
        attribute.type = attribute.TENSORS
        attribute.tensors.add(name="value0", dims=kind.shape, data_type=kind.dtype, raw_data=bytes(kind.bytes))
        return node.name

    def tensor(self, primitive: str, inputs: Sequence[str], kind: TensorType, output: str | None = None) -> str:
        """A node that gives a tensor out, under the name `output` if that is given."""
        node, shape = self._new_node(primitive, inputs, output)
        shape.type = shape.TENSORS
        shape.tensors.add(dims=kind.shape, data_type=kind.dtype)
        return node.name

    def tensors(self, primitive: str, inputs: Sequence[str], kinds: Sequence[TensorType]) -> str:
        """A node that gives a tuple of tensors out."""
        node, shape = self._new_node(primitive, inputs, None)
        shape.type = shape.TUPLE
        for kind in kinds:
            element = shape.values.add(type=shape.TENSORS)
            element.tensors.add(dims=kind.shape, data_type=kind.dtype)
        shape.seq_info.is_dyn_len = False
        return node.name

    def primitive(self, operation: str, attributes: dict[str, str | int | bool] | None = None) -> str:
        """A primitive that takes its arguments as attributes, as the collectives and the tuple operations do."""
        return self._new_primitive(operation, attributes or {}, 1)

    def function(self, operation: str) -> str:
        """A primitive that takes all its arguments as inputs, as the operations of `mindspore.ops.auto_generate` do."""
        return self._new_primitive(operation, {}, 2)

    def _new_primitive(self, operation: str, attributes: dict[str, str | int | bool], prim_type: int) -> str:
        primitive = self.model.primitives.add(op_type=operation, prim_type=prim_type, instance_name=operation)
        primitive.name = f"{operation}:added_{len(self.model.primitives)}"
        for name, value in attributes.items():
            attribute = primitive.attribute.add(name=name)
            if isinstance(value, str):
                attribute.type, attribute.s = attribute.STRING, value.encode()
            else:
                attribute.type = attribute.BOOL if isinstance(value, bool) else attribute.INT64
                attribute.i = int(value)
        return primitive.name

    def _new_constant(self) -> tuple[Any, Any]:
        from mindspore.train.mind_ir_pb2 import NodeProto

        name = f"added_constant_{len(self.nodes)}"
        node = NodeProto(name=name, op_type=CONSTANT, output=[name])
        self.nodes.append(node)
        return node, node.attribute.add(name="value")

    def _new_node(self, primitive: str, inputs: Sequence[str], output: str | None) -> tuple[Any, Any]:
        from mindspore.train.mind_ir_pb2 import NodeProto

        name = output or f"added_{len(self.nodes)}"
        node = NodeProto(name=name, op_type=REFERENCE + primitive, output=[name], input=inputs, domain=self.scope)
        self.nodes.append(node)
        return node, node.attribute.add(name="shape")
