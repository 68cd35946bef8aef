"""What a strategy amounts to: groups, idle time, communication, and the warnings about them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from models.llama.config import LlamaConfig
from msllm.config.sections import DataConfig, ParallelConfig, RecomputeConfig, RunConfig, TrainingConfig
from msllm.hardware.cluster import Cluster, usual_cluster
from msllm.hardware.links import HCCS_A2, ROCE_A2
from msllm.planner.costs import bubble_fraction, micro_batches_for, tensor_parallel_bytes
from msllm.planner.groups import communication_groups
from msllm.planner.verdict import verdict

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 4096,
}


def run(recompute: Any = False, select: Any = False, batch: int = 64, **parallel: Any) -> RunConfig:
    return RunConfig(
        model=LlamaConfig(**LLAMA),
        data=DataConfig(train_dataset="d", seq_length=4096),
        training=TrainingConfig(train_steps=1, global_batch_size=batch, amp_level="O2", compute_dtype="bfloat16"),
        parallel_config=ParallelConfig(**parallel),
        recompute_config=RecomputeConfig(recompute=recompute, select_recompute=select),
    )


def warnings(config: RunConfig, cluster: Cluster | None = None) -> tuple[str, ...]:
    """Of devices that have memory enough for all."""
    found = cluster or usual_cluster("910B", config.parallel_config.device_num)
    return verdict(config, replace(found, hbm_gb=10_000)).warnings


def test_too_little_memory_is_told_first_with_what_would_save_some():
    config = run(batch=16, data_parallel=8)
    found = verdict(config, usual_cluster("910B", 8))
    fullest = found.figures["memory"][0]
    assert not fullest["fits"] and fullest["total_bytes"] > 64 << 30
    assert found.warnings[0].startswith("stage 0 takes about ")
    assert (
        "of a device's 64; set recompute_config.recompute to true, enable_parallel_optimizer to true, smaller micro"
        in (found.warnings[0])
    )
    assert "memory on Ascend" in dict(found.rows)


def test_the_estimate_adds_up_and_fits_where_it_is_less_than_the_chip_has():
    config = run(batch=8, recompute=True, data_parallel=8, model_parallel=8, use_seq_parallel=True)
    [stage] = verdict(config, usual_cluster("910B", 64)).figures["memory"]
    parts = sum(stage[f"{name}_bytes"] for name in ("weights", "optimizer", "gradient", "activation"))
    beside = sum(stage[f"{name}_bytes"] for name in ("hccl", "workspace", "fragmentation"))
    assert parts == stage["peak_bytes"] and parts + beside == stage["total_bytes"]
    assert stage["fits"] and stage["hccl_bytes"] == 3 * 200 << 20  # two axes and all ranks


def test_groups_follow_mindspores_numbering():
    """pp2 dp2 tp4: tensor-parallel ranks are neighbours, stages are the halves of the job."""
    parallel = ParallelConfig(data_parallel=2, model_parallel=4, pipeline_stage=2, micro_batch_num=2)
    found = {group.axis: group for group in communication_groups(parallel, usual_cluster("910B", 16))}
    assert found["model_parallel"].ranks == (0, 1, 2, 3) and found["model_parallel"].count == 4
    assert found["data_parallel"].ranks == (0, 4) and found["data_parallel"].count == 8
    assert found["pipeline_stage"].ranks == (0, 8) and found["pipeline_stage"].count == 8
    assert [found[axis].spans_servers for axis in found] == [False, False, True]
    assert found["pipeline_stage"].link is ROCE_A2


def test_a_group_that_straddles_servers_is_found_where_the_first_one_does_not():
    parallel = ParallelConfig(data_parallel=4, model_parallel=3)
    tensor = communication_groups(parallel, usual_cluster("910B", 12))[0]
    assert tensor.spans_servers and tensor.ranks == (6, 7, 8)


@pytest.mark.parametrize(
    ("stages", "micro", "chunks", "idle"), [(1, 1, 1, 0.0), (4, 4, 1, 3 / 7), (4, 4, 2, 3 / 11), (8, 64, 1, 7 / 71)]
)
def test_the_idle_share_of_a_pipeline(stages, micro, chunks, idle):
    parallel = ParallelConfig(pipeline_stage=stages, micro_batch_num=micro, pp_interleave_num=chunks)
    assert bubble_fraction(parallel) == pytest.approx(idle)


@pytest.mark.parametrize("stages", [2, 3, 4, 8])
@pytest.mark.parametrize("chunks", [1, 2, 3])
def test_the_micro_batches_that_are_proposed_suffice_and_fewer_do_not(stages, chunks):
    def idle(micro: int) -> float:
        return bubble_fraction(ParallelConfig(pipeline_stage=stages, micro_batch_num=micro, pp_interleave_num=chunks))

    enough = micro_batches_for(ParallelConfig(pipeline_stage=stages, pp_interleave_num=chunks), 0.1)
    assert enough % stages == 0
    assert idle(enough) <= 0.1 + 1e-9
    assert enough == stages or idle(enough - stages) > 0.1


def test_tensor_parallel_sends_four_reductions_a_layer():
    """One sample of 4096 x 4096 in bfloat16 is 32 MiB; an all-reduce over 8 sends 2 x 7/8 of it."""
    config = run(batch=8, data_parallel=8, model_parallel=8)
    assert tensor_parallel_bytes(config) == 4 * 2 * 7 / 8 * 4096 * 4096 * 2
    assert tensor_parallel_bytes(run(batch=8, data_parallel=8)) == 0


def test_tensor_parallel_between_servers_is_told_its_cost():
    config = run(batch=1, model_parallel=8, use_seq_parallel=True)
    (found,) = warnings(config, Cluster(2, 4, "910B", 64, HCCS_A2, ROCE_A2))
    assert found.startswith(
        "model_parallel (8) spans servers of 4 devices, as ranks 0 1 ... 7: each device sends 0.235 GB"
    )
    # HCCS in a group of 4: 3 wires of 28 GB/s against 25 of RoCE.
    assert "over RoCE, which is 3.4 times slower than HCCS (0.301 s a step instead of 0.0895, at peak rates)" in found


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (run(data_parallel=8), []),
        (run(data_parallel=64), []),
        (run(model_parallel=8, use_seq_parallel=True), []),
        (
            run(model_parallel=8),
            ["use_seq_parallel is false: true cuts what lies between the tensor-parallel blocks by 8"],
        ),
        (
            run(pipeline_stage=4, micro_batch_num=4),
            [
                "the pipeline idles 43% of a step, with 4 stages and 4 micro batches; micro_batch_num 28 would bring that to 10%"
            ],
        ),
        (run(pipeline_stage=2, micro_batch_num=16), []),
        (run(micro_batch_num=4), ["micro_batch_num (4) does nothing with pipeline_stage 1"]),
        (
            run(recompute=True),
            ["recompute does the forward pass of 100% of the layers twice: about 33% more work a step"],
        ),
        (
            run(recompute=(8,)),
            ["recompute does the forward pass of 25% of the layers twice: about 8% more work a step"],
        ),
        (run(select=True), []),
        (run(data_parallel=8, enable_parallel_optimizer=True), []),
        (
            run(batch=48, data_parallel=3, enable_parallel_optimizer=True),
            [
                "enable_parallel_optimizer leaves weights whole whose first axis is hidden_size (4096) as data_parallel (3)",
                "enable_parallel_optimizer leaves weights whole whose first axis is vocab_size (32000) as data_parallel (3)",
                "enable_parallel_optimizer leaves weights whole whose first axis is intermediate_size (11008) as data_parallel",
            ],
        ),
        (
            run(batch=512, data_parallel=512, enable_parallel_optimizer=True, vocab_emb_dp=True),
            [
                "enable_parallel_optimizer leaves weights whole whose first axis is vocab_size (32000) as data_parallel (512)",
                "enable_parallel_optimizer leaves weights whole whose first axis is intermediate_size (11008) as data_parallel",
            ],
        ),
        (
            run(
                data_parallel=8,
                enable_parallel_optimizer=True,
                parallel_optimizer_config={"parallel_optimizer_threshold": 10**6},
            ),
            ["enable_parallel_optimizer cuts nothing: the embedding has 512000 KB on a device, below"],
        ),
    ],
    ids=lambda value: "",
)
def test_warnings_name_what_may_not_be_meant(config, expected):
    found = warnings(config)
    assert len(found) == len(expected)
    for warning, start in zip(found, expected):
        assert warning.startswith(start), warning


def test_rows_and_figures_say_the_same():
    config = run(
        data_parallel=2,
        model_parallel=4,
        pipeline_stage=4,
        micro_batch_num=8,
        pp_interleave_num=2,
        offset=(1, 0, 0, -1),
    )
    found = verdict(config, usual_cluster("910B", 32))
    rows, figures = dict(found.rows), found.figures
    assert rows["layers per stage"] == "10 8 8 6 in 2 interleaved groups (5/4/4/3 + 5/4/4/3)"
    assert figures["layers_per_stage"] == [10, 8, 8, 6]
    assert rows["batch"] == "64 samples a step = 2 replicas x 8 micro batches x 4 samples of 4096 tokens"
    assert (figures["micro_batches"], figures["micro_batch_size"], figures["tokens_per_step"]) == (8, 4, 64 * 4096)
    assert rows["devices"] == "32 of 910B 64 GB in 4 servers"
    assert rows["pipeline_stage groups"] == "8 of 4, over RoCE between servers, as ranks 0 8 16 24"
    assert figures["groups"]["pipeline_stage"]["ranks"] == [0, 8, 16, 24]
