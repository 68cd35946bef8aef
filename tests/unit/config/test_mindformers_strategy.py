"""Strategies in MindFormers YAMLs: what becomes of stages, optimizer parallelism and recomputation."""

from __future__ import annotations

import pytest

from msllm.config.yaml_text import dump_yaml

STAGES = {"parallel_config": {"pipeline_stage": 2, "micro_batch_num": 2}}
INTERLEAVED = {"pipeline_config": {"pipeline_interleave": True, "pipeline_scheduler": "1f1b"}}


@pytest.mark.parametrize(
    ("parts", "stages", "expected"),
    [
        ({"pp_interleave_num": 2, "offset": [1, -1]}, {"parallel": INTERLEAVED}, {"pp_interleave_num": 2, "offset": [1, -1]}),
        ({"pp_interleave_num": 1, "offset": [[0, 1]]}, {}, {"pp_interleave_num": 1, "offset": [[0, 1]]}),
        ({"pp_interleave_num": 2, "offset": 0}, {}, {"offset": 0}),
        ({"pp_interleave_num": 2}, {"parallel": {"pipeline_config": {"pipeline_interleave": False}}}, {}),
        (
            {"pp_interleave_num": 2},
            {"parallel": {"pipeline_config": {"pipeline_interleave": True, "pipeline_scheduler": "zero_bubble_v"}}},
            {},
        ),
        ({"pp_interleave_num": 2, "offset": 0}, {"parallel_config": {"data_parallel": 2}, "parallel": INTERLEAVED}, {}),
    ],
)  # fmt: skip
def test_the_stages_of_the_layers_move_from_the_model_to_the_strategy(convert, parts, stages, expected, reason_of):
    model = {"model": {"model_config": {"type": "LlamaConfig", **parts}}}
    imported, values = convert(dump_yaml({**STAGES, **model, **stages}))
    carried = {key: values["parallel_config"][key] for key in parts if key in values["parallel_config"]}
    assert carried == expected
    for key in parts.keys() - expected.keys():
        assert reason_of(imported, f"model.model_config.{key}")


def test_details_of_the_parallel_optimizer_are_carried_where_it_is_on(convert, reason_of):
    details = {
        "gradient_accumulation_shard": True,
        "parallel_optimizer_threshold": 8,
        "optimizer_weight_shard_size": -1,
    }
    parallel = {"enable_parallel_optimizer": True, "parallel_optimizer_config": details}
    imported, values = convert(dump_yaml({"parallel_config": {"data_parallel": 2}, "parallel": parallel}))
    kept = {key: details[key] for key in ("gradient_accumulation_shard", "parallel_optimizer_threshold")}
    assert values["parallel_config"]["parallel_optimizer_config"] == kept
    assert not any("parallel.parallel_optimizer_config" in paths for paths in imported.dropped.values())
    details["optimizer_weight_shard_size"] = 4
    imported, _ = convert(dump_yaml({"parallel_config": {"data_parallel": 2}, "parallel": parallel}))
    size = "parallel.parallel_optimizer_config.optimizer_weight_shard_size"
    assert reason_of(imported, size) == "weights and optimizer state are cut over the whole of data_parallel"
    parallel["enable_parallel_optimizer"] = False
    imported, values = convert(dump_yaml({"parallel_config": {"data_parallel": 2}, "parallel": parallel}))
    assert "parallel_optimizer_config" not in values["parallel_config"]
    assert reason_of(imported, size) == "it has no effect without enable_parallel_optimizer"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"recompute": True, "select_recompute": True}, {"recompute": True}),
        ({"recompute": False, "select_recompute": [3, 0]}, {"recompute": False, "select_recompute": [3, 0]}),
        ({"recompute": [2, 1], "select_recompute": True}, {"recompute": [2, 1], "select_recompute": True}),
        ({"recompute": [[2, 1], [1, 1]], "select_recompute": False}, {"select_recompute": False}),
        ({"recompute": [True, 1], "select_recompute": {"mlp.mul": True}}, {}),
        ({"recompute": True, "mp_comm_recompute": True, "recompute_slice_activation": True}, {"recompute": True}),
    ],
)
def test_recomputation_is_carried_where_it_counts_whole_layers(convert, given, expected, reason_of):
    imported, values = convert(dump_yaml({"seed": 1, "recompute_config": given}))
    assert values.get("recompute_config", {}) == expected
    for key in given.keys() - expected.keys() - {"mp_comm_recompute"}:
        assert reason_of(imported, f"recompute_config.{key}")
    assert bool(imported.differences) == bool(expected.get("select_recompute"))
