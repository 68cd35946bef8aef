"""Rules of a strategy: each broken one gives one fault that names both numbers and what is legal."""

from __future__ import annotations

import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from valid_sections import loaded, messages

from msllm.config.checks import unsupported_on, wrong_device_number
from msllm.config.origin import LoadedConfig
from msllm.errors import Problem


def device_problems(config: LoadedConfig, devices: int, started: bool = False) -> list[Problem]:
    return wrong_device_number(config.config.parallel_config, config.origins, devices, started)


DEEP = {"pipeline_stage": 4, "micro_batch_num": 4}
EIGHT = {"num_hidden_layers": 8}


@pytest.mark.parametrize(
    "changes",
    [
        {"parallel": {"model_parallel": 8, "use_seq_parallel": True}},
        {"parallel": {**DEEP, "data_parallel": 8, "enable_parallel_optimizer": True}},
        {"parallel": {"micro_batch_num": 7}},
        {"parallel": {**DEEP, "offset": (-1, 0, 0, 1)}},
        {"parallel": {**DEEP, "offset": (0, 1, 1, 0)}, "model": {"num_hidden_layers": 34}},
        {"parallel": {**DEEP, "pp_interleave_num": 2}},
        {"parallel": {**DEEP, "pp_interleave_num": 2, "offset": ((1, 0, 0, 0), (0, 0, 0, -1))}},
        {"parallel": {**DEEP, "pp_interleave_num": 2, "offset": (1, 0, 0, -1)}},
        {"parallel": {"offset": (0,)}},
        {"recompute": {"recompute": True}},
        {"recompute": {"recompute": (4,), "select_recompute": (8,)}},
        {"parallel": DEEP, "recompute": {"recompute": (8, 4, 0, 0), "select_recompute": True}},
        {"parallel": DEEP, "recompute": {"recompute": False, "select_recompute": (0, 0, 0, 0)}},
        {"model": {"model_type": "gpt2"}, "parallel": {"model_parallel": 4, "vocab_emb_dp": True}},
        {"model": {"tie_word_embeddings": True}, "parallel": {"model_parallel": 4}},
        *({"parallel": {"model_parallel": degree}} for degree in (1, 2, 4, 8)),
    ],
    ids=repr,
)
def test_good_strategies_have_no_fault(changes):
    assert messages(**changes) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"parallel": {"model_parallel": 16}},
            "num_key_value_heads (8) must be divisible by model_parallel (16); set model_parallel to one of 1, 2, 4, 8",
        ),
        (
            {"model": {"model_type": "gpt2", "vocab_size": 50304}, "parallel": {"model_parallel": 8}},
            "num_attention_heads (12) must be divisible by model_parallel (8); set model_parallel to one of 1, 2, 3, 4, 6, 12",
        ),
        (
            {"model": {"intermediate_size": 14338}, "parallel": {"model_parallel": 4}},
            "intermediate_size (14338) must be divisible by model_parallel (4); set model_parallel to one of 1, 2",
        ),
        (
            {"model": {"model_type": "gpt2"}, "parallel": {"model_parallel": 4}},
            "vocab_size (50257) must be divisible by model_parallel (4); "
            "set vocab_size to 50260 (rows are added) or vocab_emb_dp to true",
        ),
        (
            {"parallel": {"expert_parallel": 2}},
            "expert_parallel (2) needs a mixture of experts, and llama has none; set expert_parallel to 1",
        ),
        (
            {"parallel": {"context_parallel": 2}},
            "context_parallel (2) is not built yet; set context_parallel to 1, and for long sequences use model_parallel "
            "with use_seq_parallel and recompute",
        ),
        (
            {"parallel": {"use_seq_parallel": True}},
            "use_seq_parallel (true) needs model_parallel (1) greater than 1; "
            "set use_seq_parallel to false or model_parallel to 2 or more",
        ),
        (
            {"parallel": {"enable_parallel_optimizer": True}},
            "enable_parallel_optimizer (true) needs data_parallel (1) greater than 1; "
            "set enable_parallel_optimizer to false or data_parallel to 2 or more",
        ),
        (
            {"parallel": {"parallel_optimizer_config": {"parallel_optimizer_threshold": 8}}},
            "parallel_optimizer_config changes nothing with enable_parallel_optimizer (false); "
            "remove it or set enable_parallel_optimizer to true",
        ),
        (
            {"data": {"seq_length": 1022}, "parallel": {"model_parallel": 4, "use_seq_parallel": True}},
            "seq_length (1022) must be divisible by model_parallel (4) under use_seq_parallel; "
            "set seq_length to 1020 or 1024",
        ),
        (
            {"training": {"global_batch_size": 30, "gradient_accumulation_steps": 2}, "parallel": {"data_parallel": 4}},
            "global_batch_size (30) must be divisible by data_parallel (4) x gradient_accumulation_steps (2) = 8; "
            "set global_batch_size to 24 or 32",
        ),
    ],
)
def test_a_broken_rule_is_one_fault_with_both_numbers_and_the_remedy(changes, expected):
    assert messages(**changes) == [expected]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {
                "parallel": {"pipeline_stage": 5, "micro_batch_num": 8, "data_parallel": 8},
                "training": {"global_batch_size": 64},
            },
            "num_hidden_layers (32) must be divisible by pipeline_stage (5); "
            "set pipeline_stage to one of 1, 2, 4, 8, 16, 32 or set offset to [0, 1, 1, 0, 0]",
        ),
        (
            {"parallel": {**DEEP, "pp_interleave_num": 3}},
            "num_hidden_layers (32) must be divisible by pipeline_stage (4) x pp_interleave_num (3) = 12; "
            "set offset to [[0, 1, 1, 1], [1, 1, 1, 1], [1, 0, 0, 0]]",
        ),
        (
            {"model": {"num_hidden_layers": 2}, "parallel": {"pipeline_stage": 4, "micro_batch_num": 4}},
            "num_hidden_layers (2) must be divisible by pipeline_stage (4); set pipeline_stage to one of 1, 2",
        ),
        (
            {"model": {"num_hidden_layers": 2}, "parallel": {**DEEP, "pp_interleave_num": 4}},
            "num_hidden_layers (2) must be divisible by pipeline_stage (4) x pp_interleave_num (4) = 16; "
            "set num_hidden_layers to 16",
        ),
        (
            {"parallel": {**DEEP, "offset": (1, 0, 0, 0)}},
            "offset ([1, 0, 0, 0]) adds up to 1, and must add up to 0: what num_hidden_layers (32) leaves after 8 for each of "
            "pipeline_stage (4); set it to [0, 0, 0, 0] or to others with that sum",
        ),
        (
            {"model": EIGHT, "parallel": {**DEEP, "offset": (2, -2, 0, 0)}},
            "offset ([2, -2, 0, 0]) leaves stage 1 with 0 layers of num_hidden_layers (8), and each needs at least 1; "
            "set its number to -1 or more",
        ),
        (
            {"model": EIGHT, "parallel": {**DEEP, "pp_interleave_num": 2, "offset": ((0, 0, 0, 1), (-1, 0, 0, 0))}},
            "offset ([[0, 0, 0, 1], [-1, 0, 0, 0]]) leaves stage 0, interleave 1 with 0 layers of num_hidden_layers (8), and "
            "each needs at least 1; set its number to 0 or more",
        ),
        (
            {"parallel": {**DEEP, "offset": 1}},
            "offset (1) would be added to every stage; "
            "set offset to 0 or to a list with one number for each of pipeline_stage (4)",
        ),
        (
            {"parallel": {**DEEP, "offset": (1, -1)}},
            "offset ([1, -1]) has 2 numbers in a list, and must have one for each of pipeline_stage (4); "
            "set offset to 0 or to a list of that length",
        ),
        (
            {"parallel": {**DEEP, "offset": ((0, 0, 0, 0), (0, 0, 0, 0))}},
            "offset ([[0, 0, 0, 0], [0, 0, 0, 0]]) has 2 lists, and must have one for each of pp_interleave_num (1); "
            "add or remove lists",
        ),
        (
            {"parallel": {"offset": (1,)}},
            "offset ([1]) changes nothing with pipeline_stage (1); set offset to 0",
        ),
        (
            {"parallel": {"pipeline_stage": 4, "micro_batch_num": 2}},
            "micro_batch_num (2) must be at least pipeline_stage (4); set micro_batch_num to 4 or more",
        ),
        (
            {"parallel": {"pp_interleave_num": 2}},
            "pp_interleave_num (2) needs pipeline_stage (1) greater than 1; "
            "set pp_interleave_num to 1 or pipeline_stage to 2 or more",
        ),
        (
            {"parallel": {**DEEP, "pp_interleave_num": 2, "micro_batch_num": 6}, "training": {"global_batch_size": 6}},
            "micro_batch_num (6) must be divisible by pipeline_stage (4) where pp_interleave_num (2) is above 1; "
            "set micro_batch_num to 4 or 8",
        ),
        (
            {"parallel": {"pipeline_stage": 2, "micro_batch_num": 64}},
            "global_batch_size (32) must be divisible by data_parallel (1) x micro_batch_num (64) = 64; "
            "set global_batch_size to 64",
        ),
        (
            {"parallel": DEEP, "training": {"gradient_accumulation_steps": 2}},
            "gradient_accumulation_steps (2) must be 1 with pipeline_stage (4), whose micro batches are accumulated; "
            "set gradient_accumulation_steps to 1 and micro_batch_num to 8",
        ),
        (
            {"parallel": DEEP, "model": {"tie_word_embeddings": True}},
            "tie_word_embeddings (true) makes embedding and head one matrix, which pipeline_stage (4) would put on two stages; "
            "set pipeline_stage to 1 or tie_word_embeddings to false",
        ),
        (
            {"parallel": DEEP, "model": {"model_type": "gpt2"}},
            "model_type ('gpt2') makes embedding and head one matrix, which pipeline_stage (4) would put on two stages; "
            "set pipeline_stage to 1",
        ),
        (
            {"parallel": DEEP, "recompute": {"recompute": (1, 2)}},
            "recompute ([1, 2]) has 2 numbers, and must have one for each of pipeline_stage (4); "
            "set recompute to true or to a list of that length",
        ),
        (
            {"parallel": DEEP, "recompute": {"select_recompute": (8, 9, 0, 0)}},
            "select_recompute ([8, 9, 0, 0]) wants 9 layers of stage 1, which has 8; set its number to 8 or less",
        ),
        (
            {"recompute": {"recompute": True, "select_recompute": True}},
            "select_recompute (true) changes nothing: all of its layers are in recompute (true); "
            "set select_recompute to false",
        ),
        (
            {"recompute": {"recompute": (5,), "select_recompute": (4,)}},
            "select_recompute ([4]) changes nothing: all of its layers are in recompute ([5]); "
            "set select_recompute to false",
        ),
    ],
)
def test_a_broken_rule_of_a_pipeline_or_of_recomputation(changes, expected):
    assert messages(**changes) == [expected]


@given(st.integers(1, 100), st.integers(1, 9), st.integers(1, 4))
def test_the_offset_that_a_fault_proposes_is_legal(layers, stages, chunks):
    parallel = {"data_parallel": 8, "pipeline_stage": stages, "micro_batch_num": stages}
    parallel["pp_interleave_num"] = chunks if stages > 1 else 1
    changes = {"model": {"num_hidden_layers": layers}, "training": {"global_batch_size": 8 * stages}}
    for message in messages(**changes, parallel=parallel):
        proposal = message.partition("set offset to ")[2]
        if proposal:
            assert messages(**changes, parallel={**parallel, "offset": ast.literal_eval(proposal)}) == []


@pytest.mark.parametrize(
    ("degrees", "devices", "remedy"),
    [
        ({"data_parallel": 2, "model_parallel": 4}, 16, "set data_parallel to 4, or take 8 devices"),
        (
            {"model_parallel": 3},
            8,
            "set model_parallel to one of 1, 2, 4, 8, and data_parallel to the rest, or take 3 devices",
        ),
        (
            {"model_parallel": 8, "pipeline_stage": 3, "micro_batch_num": 4},
            8,
            "set pipeline_stage to one of 1, 2, 4, 8, and data_parallel to the rest, or take 24 devices",
        ),
    ],
)
def test_a_strategy_for_another_number_of_devices_is_told_both_numbers(degrees, devices, remedy):
    changed = {"parallel": degrees, "model": {"num_hidden_layers": 12, "num_key_value_heads": None}}
    (problem,) = device_problems(loaded(**changed), devices)
    assert f"must equal the number of devices ({devices}); {remedy} (p.yaml:2, p.yaml:3, p.yaml:6)" in str(problem)
    assert "x pipeline_stage" in str(problem)


def test_the_right_number_of_devices_is_no_problem():
    assert device_problems(loaded(parallel={"data_parallel": 2, "model_parallel": 4}), 8) == []


def test_processes_are_told_how_to_be_started():
    (problem,) = device_problems(loaded(parallel={"data_parallel": 2, "model_parallel": 2}), 1, started=True)
    assert "must equal the number of processes started (1)" in str(problem)
    assert "start them with `msrun --worker_num 4 ...`" in str(problem)


def test_cpu_trains_data_parallel_only_and_is_told_how_to_prove_the_rest():
    parallel = {"model_parallel": 2, **DEEP, "data_parallel": 2, "enable_parallel_optimizer": True}
    config = loaded(parallel=parallel)
    assert unsupported_on(config, "Ascend") == []
    told = "needs Ascend; CPU trains data-parallel only: prove this strategy with `msllm rehearse run`, or set"
    assert [str(problem) for problem in unsupported_on(config, "CPU")] == [
        f"model_parallel (2) {told} model_parallel to 1 (p.yaml:3)",
        f"pipeline_stage (4) {told} pipeline_stage to 1 (p.yaml:6)",
        f"enable_parallel_optimizer (true) {told} it to false (p.yaml:12)",
    ]
    assert (
        unsupported_on(loaded(parallel={"data_parallel": 8, "vocab_emb_dp": True, "micro_batch_num": 4}), "CPU") == []
    )
