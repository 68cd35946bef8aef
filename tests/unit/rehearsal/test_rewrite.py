"""Each rewritten collective gives what the original is defined to give, on NumPy ranks; what has no CPU form is named."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from handmade import collective, model_of, run_ranks, tensor
from hypothesis import given
from hypothesis import strategies as st

from msllm.errors import RunError
from msllm.rehearsal.execute import check_transfers
from msllm.rehearsal.mindir import TensorType
from msllm.rehearsal.rewrite import rewrite_model

groups_of_ranks = st.sampled_from([(0, 1), (0, 1, 2), (1, 0), (2, 0, 1)])
"""Groups that are not in the order of ranks too: the order of a group decides who holds which part."""


def values_of(ranks: int, *shape: int, dtype: str = "float32") -> list[np.ndarray]:
    return [np.random.default_rng(rank).integers(-9, 9, shape).astype(dtype) for rank in range(ranks)]


def run_collective(
    kind: str, group: tuple[int, ...], values: list[np.ndarray], result: TensorType, **attributes: Any
) -> list[np.ndarray]:
    """The results of one collective on all ranks of a group, after it was rewritten."""
    models, groups = [], {}
    for rank, value in enumerate(values):
        given_type = TensorType(value.shape, {"f4": 1, "f2": 10, "i4": 6}[value.dtype.str[1:]])
        model = model_of({"x": given_type}, lambda b: collective(b, kind, group, "x", result, "y", **attributes))
        groups |= rewrite_model(model, rank)
        models.append(model)
    return run_ranks(models, [{"x": value} for value in values], groups)


@given(groups_of_ranks, st.sampled_from(["float32", "float16", "int32"]))
def test_all_gather_gives_every_rank_the_parts_in_the_order_of_the_group(group, dtype):
    values = values_of(len(group), 2, 3, dtype=dtype)
    results = run_collective("AllGather", group, values, tensor(2 * len(group), 3, dtype=dtype))
    for result in results:
        np.testing.assert_array_equal(result, np.concatenate([values[rank] for rank in group]))


@given(groups_of_ranks)
def test_reduce_scatter_gives_each_rank_its_part_of_the_sum(group):
    values = values_of(len(group), 2 * len(group), 3)
    results = run_collective("ReduceScatter", group, values, tensor(2, 3), op="sum")
    parts = np.split(sum(values), len(group))
    for place, rank in enumerate(group):
        np.testing.assert_array_equal(results[rank], parts[place])


@given(groups_of_ranks, st.sampled_from([("sum", sum), ("max", np.maximum.reduce), ("min", np.minimum.reduce)]))
@pytest.mark.parametrize("shape", [(4, 2), (3,), ()])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_all_reduce_combines_tensors_and_scalars_of_any_type(shape, dtype, group, operation):
    name, combine = operation
    values = values_of(len(group), *shape, dtype=dtype)
    for result in run_collective("AllReduce", group, values, tensor(*shape, dtype=dtype), op=name):
        np.testing.assert_array_equal(result, combine(values))


@given(groups_of_ranks, st.sampled_from([(0, 1), (1, 0), (1, 2)]))
def test_all_to_all_exchanges_the_pieces(group, axes):
    cut, join = axes
    count = len(group)
    shape = [2, 3, 2]
    shape[cut] *= count
    values = values_of(count, *shape)
    expected = {
        rank: np.concatenate([np.split(values[other], count, cut)[place] for other in group], join)
        for place, rank in enumerate(group)
    }
    results = run_collective(
        "AlltoAll", group, values, tensor(*expected[0].shape), split_count=count, split_dim=cut, concat_dim=join
    )
    for rank, result in enumerate(results):
        np.testing.assert_array_equal(result, expected[rank])


def transfer_models(dtype: str = "float32") -> tuple[list[Any], dict[str, list[int]]]:
    """Rank 0 sends two tensors to rank 1, which receives the second one after the first."""
    kind, world = tensor(2, 2, dtype=dtype), (0, 1)

    def send(b):
        first = collective(b, "Send", world, "x", kind, "s0", dest_rank=1, sr_tag=0)
        return collective(b, "Send", world, first, kind, "s1", dest_rank=1, sr_tag=0)

    def receive(b):
        first = collective(b, "Receive", world, "x", kind, "r0", src_rank=0, sr_tag=0)
        second = collective(b, "Receive", world, first, kind, "r1", src_rank=0, sr_tag=0)
        return b.tensor(b.function("Add"), [first, second], kind)

    models = [model_of({"x": kind}, build) for build in (send, receive)]
    groups: dict[str, list[int]] = {}
    for rank, model in enumerate(models):
        groups |= rewrite_model(model, rank)
    return models, groups


@pytest.mark.parametrize("own", [0.0, np.nan, np.inf])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_receive_gives_what_was_sent_whatever_the_receiver_holds(own, dtype):
    models, groups = transfer_models(dtype)
    sent = np.array([[1, 2], [3, np.inf]], dtype)
    results = run_ranks(models, [{"x": sent}, {"x": np.full((2, 2), own, dtype)}], groups)
    np.testing.assert_array_equal(results[1], sent + sent)


def test_every_transfer_has_a_group_of_its_own():
    _, groups = transfer_models()
    assert groups == {"transfer_0_1_0_0": [0, 1], "transfer_0_1_0_1": [0, 1]}


def test_the_world_group_takes_its_name_on_cpu():
    model = model_of(
        {"x": tensor(2)},
        lambda b: collective(b, "AllReduce", (0, 1), "x", tensor(2), "y", op="sum", group="hccl_world_group"),
    )
    assert rewrite_model(model, 0) == {}
    assert b"mccl_world_group" in model.SerializeToString()


@pytest.mark.parametrize(
    "operation, attributes, kind, message",
    [
        ("NeighborExchange", {"group": "g"}, tensor(2), "NeighborExchange in layer has no CPU form"),
        ("RmsNorm", {}, tensor(2), "RmsNorm in layer runs on Ascend alone"),
        ("MatMul", {}, tensor(2, dtype="bfloat16"), "MatMul in layer gives bfloat16"),
    ],
)
def test_an_operation_without_a_cpu_form_is_named_with_its_cell(operation, attributes, kind, message):
    model = model_of(
        {"x": tensor(2)},
        lambda b: b.tensor(b.primitive(operation, attributes), ["x"], kind),
        scope="Default/network-Net/layer-Cell/op0",
    )
    with pytest.raises(RunError, match=message):
        rewrite_model(model, 0)


def test_a_lazily_inlined_graph_is_refused():
    model = model_of({"x": tensor(2)}, lambda b: b.tensor("elsewhere", ["x"], tensor(2)))
    with pytest.raises(RunError, match="lazy inline"):
        rewrite_model(model, 0)


def test_transfers_pair_up_or_the_first_that_does_not_is_named():
    sends = {"transfer_0_1_0_0": [0, 1], "transfer_0_1_1_0": [0, 1]}
    tensor_group = {"group_0_2": [0, 2]}
    check_transfers([sends | tensor_group, sends, tensor_group])
    with pytest.raises(
        RunError, match="ranks 0 and 1 disagree on transfer 1 .* rank 0 has transfer_0_1_0_0, rank 1 transfer_0_1_1_0"
    ):
        check_transfers([sends, dict(reversed(sends.items()))])
    with pytest.raises(RunError, match="disagree on transfer 2 .* rank 1 nothing"):
        check_transfers([sends, {"transfer_0_1_0_0": [0, 1]}])
