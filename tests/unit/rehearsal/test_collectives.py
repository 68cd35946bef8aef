"""Collectives are counted through calls and closures, and put on the right axis and link."""

from __future__ import annotations

import pytest
from handmade import add_graph, collective, model_of, tensor
from hypothesis import given
from hypothesis import strategies as st

from msllm.errors import RunError
from msllm.parallel.mesh import Mesh
from msllm.rehearsal.collectives import axis_of, cell_of, collectives_of, sent_bytes, summarize
from msllm.rehearsal.mindir import parse_model

MESH = Mesh(data=2, tensor=2, stages=2)
REDUCED = {"kind": "AllReduce", "ranks": [0, 1], "bytes": 64, "count": 1}


def all_reduce(build, value: str, output: str) -> str:
    return collective(build, "AllReduce", (0, 1), value, tensor(4, 2), output, op="sum")


def lazy_model(calls: int):
    """A network that the main graph calls `calls` times, and its backward pass, a closure that each call returns."""
    kind = tensor(4, 2)

    def forward(b):
        loss = all_reduce(b, "fx", "fy")
        closure = b.tensor(b.primitive("Partial"), ["backward", loss], kind)
        return b.tensor(b.primitive("MakeTuple"), [loss, closure], kind)

    def main(b):
        value = all_reduce(b, "x", "y")
        for _ in range(calls):
            pair = b.tensor("forward", [value], kind)
            closure = b.tensor(b.primitive("TupleGetItem"), [pair, b.constant(1)], kind)
            value = b.tensor(closure, [b.tensor(b.primitive("TupleGetItem"), [pair, b.constant(0)], kind)], kind)
        return value

    model = model_of({"x": kind}, main)
    for name, inputs, build in (
        ("forward", {"fx": kind}, forward),
        ("backward", {"bx": kind}, lambda b: all_reduce(b, all_reduce(b, "bx", "by"), "bz")),
        ("never called", {"nx": kind}, lambda b: all_reduce(b, "nx", "ny")),
    ):
        add_graph(model, model.functions.add(name=name), inputs, build)
    for graph in (model.graph, *model.functions):  # names are unique in the model, as MindSpore's are
        rename = {n.output[0]: f"{graph.name}:{n.output[0]}" for n in graph.node if n.output[0].startswith("added")}
        for node in graph.node:
            node.op_type = (
                f"REF::{rename.get(node.op_type[5:], node.op_type[5:])}" if node.op_type != "Constant" else "Constant"
            )
            node.output[0] = rename.get(node.output[0], node.output[0])
            node.input[:] = [rename.get(name, name) for name in node.input]
        graph.output[0].name = rename.get(graph.output[0].name, graph.output[0].name)
    return model


@pytest.mark.parametrize("calls", [0, 1, 3])
def test_calls_and_the_closures_that_they_return_are_counted(calls):
    counts = [c["count"] for c in collectives_of(lazy_model(calls).SerializeToString(), 0)]
    assert counts == ([1, calls, calls, calls] if calls else [1])


def test_a_call_that_cannot_be_told_is_an_error():
    model = model_of({"f": tensor(2)}, lambda b: b.tensor("f", [], tensor(2)))
    with pytest.raises(RunError, match="cannot tell which function"):
        collectives_of(model, 0)


@pytest.mark.parametrize(
    "kind, result, attributes, payload, ranks, operation",
    [
        ("AllReduce", (4, 2), {"op": "max"}, 32, [4, 5], "max"),
        ("AllGather", (4, 2), {}, 32, [4, 5], None),
        ("ReduceScatter", (4, 2), {"op": "sum"}, 64, [4, 5], "sum"),
        ("AlltoAll", (4, 2), {}, 32, [4, 5], None),
        ("Send", (4, 2), {"dest_rank": 1}, 32, [4, 5], None),
        ("Receive", (4, 2), {"src_rank": 1}, 32, [5, 4], None),
    ],
)
def test_a_collective_is_described_by_its_whole_tensor_and_ranks(kind, result, attributes, payload, ranks, operation):
    scope = "Gradients/Default/network-Loss/layers-CellList/0-Block/Grad_Op/Op-op0"

    def build(b):
        return collective(b, kind, (4, 5), "x", tensor(*result), "y", **attributes)

    described = collectives_of(model_of({"x": tensor(4, 2)}, build, scope), 4)
    where = "gradient of layers.0"
    assert described == [
        {"kind": kind, "operation": operation, "ranks": ranks, "bytes": payload, "count": 1, "where": where}
    ]


def test_what_is_no_mindir_is_refused():
    for content in (b"", b"\xff\xff\xff not a graph"):
        with pytest.raises(RunError, match="not a MindIR"):
            parse_model(content)


@pytest.mark.parametrize(
    "ranks, axis",
    [
        ([0, 1], "tensor"),
        ([4, 6], "data"),
        ([1, 5], "pipeline"),
        ([5, 1], "pipeline"),
        ([4, 5, 6, 7], "data x tensor"),
        (range(8), "world"),
        ([3], "none"),
    ],
)
def test_a_group_is_named_by_the_axis_along_which_it_lies(ranks, axis):
    assert axis_of(ranks, MESH) == axis


def test_a_world_of_one_axis_is_that_axis():
    assert axis_of(range(4), Mesh(data=4)) == "data"


@given(st.integers(2, 64), st.integers(0, 1 << 40))
def test_all_reduce_sends_what_reduce_scatter_and_all_gather_send_together(size, payload):
    together = sent_bytes("ReduceScatter", size, payload) + sent_bytes("AllGather", size, payload)
    assert 0 <= together - sent_bytes("AllReduce", size, payload) <= 1
    assert sent_bytes("Receive", size, payload) == 0
    assert sent_bytes("Send", size, payload) == payload


def test_the_summary_adds_up_by_kind_axis_and_link():
    sent = {"kind": "Send", "ranks": [0, 4], "bytes": 100, "count": 2}
    rows = summarize([REDUCED, {**REDUCED, "count": 3}, sent], MESH, devices_per_server=4)
    assert rows == [
        {"kind": "AllReduce", "axis": "tensor", "link": "inside", "number": 4, "bytes": 256, "sent": 256},
        {"kind": "Send", "axis": "pipeline", "link": "between", "number": 2, "bytes": 200, "sent": 200},
    ]


@pytest.mark.parametrize(
    "scope, cell",
    [
        (
            "Default/network-Loss/model-Llama/layers-CellList/2-Block/o_proj-Linear/AllReduce-op0",
            "model.layers.2.o_proj",
        ),
        ("Default/global_norm-Norm/sum-Sum/AllReduce-op1", "global_norm.sum"),
        ("Default/Receive-op0", ""),
        ("Gradients/Default/Grad_Receive/Send-op0", "gradient of the network"),
        ("Gradients/Default/Grad__MirrorMicroStepOperator/AllReduce-op3", "gradients of the weights"),
    ],
)
def test_a_scope_is_read_as_the_path_of_a_cell(scope, cell):
    assert cell_of(scope) == cell
