"""Sharded graphs of simulated Ascend ranks, run on CPU processes, compute what one device computes; spoilt ones are caught."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_runs
from mindspore import Tensor
from rehearsals import Rehearsal, prepare

from msllm.config.load import load_run_config
from msllm.errors import RunError
from msllm.registry import MODEL_CONFIGS, build_model
from msllm.rehearsal.collectives import cell_of, collectives_of, summarize
from msllm.rehearsal.compare import Verdict
from msllm.rehearsal.execute import execute, load_arrays
from msllm.rehearsal.mindir import DTYPE_IDS, Builder, Program, TensorType
from msllm.rehearsal.process import run_simulated
from msllm.training.build import set_tensors
from msllm.training.evaluate import RowLoss

pytestmark = pytest.mark.distributed

OPTIMIZER_PARALLEL = [
    "parallel_config.enable_parallel_optimizer=true",
    "parallel_config.parallel_optimizer_config.parallel_optimizer_threshold=0",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("rehearsal")


@pytest.fixture(scope="module")
def tensor_parallel(folder) -> Rehearsal:
    return prepare(folder / "tp2", [], ["parallel_config.model_parallel=2"])


@pytest.fixture(scope="module")
def optimizer_parallel(folder) -> Rehearsal:
    # Without clipping, which would undo a wrong factor that all gradients have.
    return prepare(
        folder / "zero", ["optimizer.max_grad_norm=null"], ["parallel_config.data_parallel=2", *OPTIMIZER_PARALLEL]
    )


@pytest.fixture(scope="module")
def pipeline(folder) -> Rehearsal:
    return prepare(folder / "pp2", [], ["parallel_config.pipeline_stage=2", "parallel_config.micro_batch_num=2"])


def wrong_tensors(verdict: Verdict, step: int = 1) -> set[str]:
    assert not verdict.passed
    return {difference.name for difference in verdict.beyond if difference.step == step}


def nodes_of(model: Any, operation: str, where: str = "") -> list[Any]:
    """The nodes of an operation in the main graph, of a cell if it is given."""
    program = Program(model)
    return [
        n for n in model.graph.node if program.operation(n) == operation and (not where or cell_of(n.domain) == where)
    ]


def attribute(model: Any, node: Any, name: str) -> Any:
    """An attribute of a primitive that this node alone has from now on."""
    primitive = model.primitives.add()
    primitive.CopyFrom(Program(model).primitives[node.op_type.removeprefix("REF::")])
    primitive.name = f"{primitive.op_type}:changed_{len(model.primitives)}"
    node.op_type = f"REF::{primitive.name}"
    return next(a for a in primitive.attribute if a.name == name)


def replace_uses(model: Any, old: str, new: str) -> None:
    for node in model.graph.node:
        node.input[:] = [new if name == old else name for name in node.input]


def drop_all_reduce(model: Any, rank: int) -> None:
    node = nodes_of(model, "AllReduce", "model.model.layers.1.self_attn.o_proj")[0]
    replace_uses(model, node.output[0], node.input[0])
    model.graph.node.remove(node)


def double_all_reduce(model: Any, rank: int) -> None:
    node = nodes_of(model, "AllReduce", "model.model.layers.1.mlp.down_proj")[0]
    place = list(model.graph.node).index(node)
    again = type(node)()
    again.CopyFrom(node)
    again.name = again.output[0] = "again"
    replace_uses(model, node.output[0], "again")
    again.input[0] = node.output[0]
    model.graph.node.insert(place + 1, again)


def swap_slices(model: Any, rank: int) -> None:
    [node] = nodes_of(model, "ReduceScatter", "gradient of model.model.layers.0.post_attention_layernorm")
    order = attribute(model, node, "group_rank_ids")
    ranks = list(order.values)[::-1]
    del order.values[:]
    order.values.extend(ranks)


def keep_sum(model: Any, rank: int) -> None:
    [node] = [node for node in nodes_of(model, "RealDiv") if "Grad__VirtualDiv" in node.domain]
    replace_uses(model, node.output[0], node.input[0])


def send_first_twice(model: Any, rank: int) -> None:
    if rank == 0:
        first, second = nodes_of(model, "Send")
        [ordered] = [node for node in nodes_of(model, "Depend") if node.output[0] == second.input[0]]
        ordered.input[0] = first.input[0]


def swap_tags(model: Any, rank: int) -> None:
    if rank == 0:
        first, second = (attribute(model, node, "sr_tag") for node in nodes_of(model, "Send"))
        first.i, second.i = second.i, first.i


@pytest.fixture(scope="module")
def of_tensor_parallel(tensor_parallel: Rehearsal) -> dict[str, Verdict]:
    return tensor_parallel.verdicts({"sound": None, "dropped": drop_all_reduce, "doubled": double_all_reduce})


@pytest.fixture(scope="module")
def of_optimizer_parallel(optimizer_parallel: Rehearsal) -> dict[str, Verdict]:
    return optimizer_parallel.verdicts({"sound": None, "wrong_slice": swap_slices, "sum": keep_sum})


@pytest.fixture(scope="module")
def of_pipeline(pipeline: Rehearsal) -> dict[str, Verdict]:
    return pipeline.verdicts({"sound": None, "sent_twice": send_first_twice})


@pytest.mark.parametrize("strategy", ["of_tensor_parallel", "of_optimizer_parallel", "of_pipeline"])
def test_two_ranks_compute_what_one_device_computes(strategy, request):
    verdict = request.getfixturevalue(strategy)["sound"]
    assert verdict.passed, verdict
    assert verdict.worst.error < 1e-5


ALL_AXES = ["data_parallel=2", "model_parallel=2", "pipeline_stage=2", "micro_batch_num=2", "use_seq_parallel=true"]


@pytest.mark.extended
@pytest.mark.parametrize(
    "name, model, settings, parallel",
    [
        ("all_axes", tiny_runs.LLAMA, [], ALL_AXES),
        ("gpt2", tiny_runs.GPT2, [], ["model_parallel=2"]),
        ("accumulation", tiny_runs.LLAMA, ["training.gradient_accumulation_steps=2"], ["data_parallel=2"]),
    ],
)
def test_other_strategies_compute_what_one_device_computes(name, model, settings, parallel, folder):
    rehearsal = prepare(folder / name, settings, [f"parallel_config.{item}" for item in parallel], model)
    verdict = rehearsal.verdicts({"sound": None})["sound"]
    assert verdict.passed, verdict


@pytest.mark.extended
def test_an_evaluation_under_every_axis_gives_all_ranks_the_loss_of_one_device(folder):
    """Also the first stage, which writes the metrics. The last row of each rank's batch does not count."""
    parallel = ["data_parallel=2", "model_parallel=2", "pipeline_stage=2", "micro_batch_num=2"]
    rehearsal = prepare(folder / "evaluation", [], [f"parallel_config.{item}" for item in parallel], evaluation=True)
    counts = np.ones((*rehearsal.batches.shape[:2], 1), np.int32)
    counts[:, 3::4] = 0
    rows = np.concatenate([rehearsal.batches, counts], axis=2)[:1]
    graphs = [rehearsal.folder / f"evaluation_{rank}.mindir" for rank in range(8)]
    files = execute(graphs, rows, rehearsal.mesh, folder=folder / "evaluated", timeout=240)

    config = load_run_config([rehearsal.folder / "run.yaml"], None, [], MODEL_CONFIGS).config
    model = build_model(config.model)
    set_tensors(model, load_arrays(rehearsal.folder / "weights.npz"))
    wanted = RowLoss(model)(Tensor(rows[0])).asnumpy()
    assert wanted > 1
    for file in files:
        np.testing.assert_allclose(load_arrays(file)["1/loss"], wanted, rtol=1e-5)


def test_the_collectives_of_optimizer_parallel_are_counted(optimizer_parallel):
    graph = (optimizer_parallel.folder / "rank_0.mindir").read_bytes()
    rows = summarize(collectives_of(graph, 0), optimizer_parallel.mesh, 8)
    cut = [p for p in optimizer_parallel.results[0]["parameters"] if p["layout"] and p["layout"][5]]
    weights = [p for p in cut if not p["name"].startswith("adam_")]
    scattered = next(row for row in rows if row["kind"] == "ReduceScatter")
    assert (scattered["number"], scattered["axis"], scattered["link"]) == (len(weights), "data", "inside")
    assert scattered["bytes"] == sum(2 * p["bytes"] for p in weights)


def test_a_lazily_inlined_graph_communicates_as_the_unrolled_one(pipeline):
    config = str(pipeline.folder / "resolved.yaml")
    spec = {"config": config, "weights": None, "mindir": None, "executable": False, "run": False}
    lazy = run_simulated(spec, rank=1, size=2, folder=pipeline.folder / "lazy")["collectives"]
    unrolled = pipeline.results[1]["collectives"]
    assert len(lazy) <= len(unrolled)
    assert summarize(lazy, pipeline.mesh, 1) == summarize(unrolled, pipeline.mesh, 1)


def test_a_wrong_slice_of_one_gradient_is_caught_and_named(of_optimizer_parallel):
    weight = "model.layers.0.post_attention_layernorm.weight"
    assert wrong_tensors(of_optimizer_parallel["wrong_slice"]) == {f"adam_m.{weight}", f"adam_v.{weight}", weight}


def test_a_dropped_collective_is_caught(of_tensor_parallel):
    wrong = wrong_tensors(of_tensor_parallel["dropped"])
    assert {"loss", "grad_norm", "adam_m.model.layers.1.mlp.up_proj.weight"} <= wrong


def test_a_doubled_collective_is_caught(of_tensor_parallel):
    assert {"loss", "adam_m.model.norm.weight"} <= wrong_tensors(of_tensor_parallel["doubled"])


def test_a_stage_that_sends_the_activations_of_another_micro_batch_is_caught(of_pipeline):
    assert {"loss", "adam_m.lm_head.weight"} <= wrong_tensors(of_pipeline["sent_twice"])


def test_transfers_that_two_stages_make_in_another_order_are_named_before_anything_runs(pipeline):
    with pytest.raises(RunError, match="ranks 0 and 1 disagree on transfer 1 between them"):
        pipeline.answers({"swapped_tags": swap_tags})


def test_a_missing_mean_over_data_parallel_ranks_is_caught(of_optimizer_parallel):
    wrong = wrong_tensors(of_optimizer_parallel["sum"])
    assert "loss" not in wrong
    assert {f"adam_m.{name}" for name in ("lm_head.weight", "model.embed_tokens.weight")} <= wrong


@pytest.mark.extended
def test_an_overflow_on_one_rank_skips_the_update_on_all(folder):
    rehearsal = prepare(folder / "float16", list(tiny_runs.FLOAT16), ["parallel_config.data_parallel=2"])

    def divide_by_zero(model: Any, rank: int) -> None:
        if rank == 1:
            [node] = [node for node in nodes_of(model, "RealDiv") if "Grad__VirtualDiv" in node.domain]
            added: list[Any] = []
            node.input[1] = Builder(model, added).zeros(TensorType((), DTYPE_IDS["float32"]))
            model.graph.node.insert(0, added[0])

    answers = rehearsal.answers({"sound": None, "overflow": divide_by_zero})
    sound = answers["sound"][0]
    assert sound["1/finite"]
    for of_rank in answers["overflow"]:
        assert not of_rank["1/finite"] and of_rank["1/skipped_steps"] == 1
        for name, value in load_arrays(rehearsal.folder / "weights.npz").items():
            np.testing.assert_array_equal(of_rank[f"1/{name}"], value)
            assert not of_rank[f"1/adam_m.{name}"].any()
            assert (sound[f"1/{name}"] != value).any()
