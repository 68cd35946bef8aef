"""Rules between sections: each broken one gives one fault that names both numbers and what is legal."""

from __future__ import annotations

from typing import Any

import pytest

from models.gpt2.config import Gpt2Config
from models.llama.config import LlamaConfig
from msllm.config.checks import cross_faults, divisors, not_trainable_yet, unsupported_on
from msllm.config.origin import LoadedConfig, Origin, Origins
from msllm.config.sections import (
    CheckpointConfig,
    DataConfig,
    LossScaleConfig,
    LrScheduleConfig,
    OptimizerConfig,
    ParallelConfig,
    RunConfig,
    TrainingConfig,
)

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 50257,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 1024,
}


def sections(**changes: dict[str, Any]) -> dict[str, Any]:
    """Valid sections with some fields changed, as section=dict(field=value)."""
    model = changes.pop("model", {})
    return {
        "model": Gpt2Config(**{**GPT2, **model})
        if model.get("model_type") == "gpt2"
        else LlamaConfig(**{**LLAMA, **model}),
        "data": DataConfig(**{"train_dataset": "d", "seq_length": 1024, **changes.pop("data", {})}),
        "optimizer": OptimizerConfig(**changes.pop("optimizer", {})),
        "lr_schedule": LrScheduleConfig(**changes.pop("lr_schedule", {})),
        "training": TrainingConfig(**{"train_steps": 100, "global_batch_size": 32, **changes.pop("training", {})}),
        "checkpoint": CheckpointConfig(**changes.pop("checkpoint", {})),
        "parallel_config": ParallelConfig(**changes.pop("parallel", {})),
    }


def messages(**changes: dict[str, Any]) -> list[str]:
    """Messages of the faults of the changed configuration."""
    return [fault.message for fault in cross_faults(sections(**changes))]


FP16 = {"amp_level": "O2", "compute_dtype": "float16", "loss_scale": LossScaleConfig()}
BF16 = {"amp_level": "O2", "compute_dtype": "bfloat16"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": {"model_type": "gpt2"}},
        {"parallel": {"model_parallel": 8, "use_seq_parallel": True}},
        {
            "parallel": {
                "pipeline_stage": 4,
                "micro_batch_num": 4,
                "data_parallel": 8,
                "enable_parallel_optimizer": True,
            }
        },
        {"parallel": {"micro_batch_num": 7}},
        {"parallel": {"context_parallel": 4}},
        {"training": FP16},
        {"training": {**BF16, "device_target": "Ascend"}},
        {"training": {**BF16, "chip": "910B"}},
        {"training": {"sink_size": 4, "device_target": "Ascend"}},
        {"lr_schedule": {"type": "wsd", "warmup_steps": 10, "decay_steps": 90}},
        {"lr_schedule": {"warmup_steps": 150, "total_steps": 200}},
        {"data": {"eval_dataset": "e"}, "training": {"eval_steps": 10, "eval_batches": 2}},
        {"checkpoint": {"save_steps": 50, "keep_every": 200}},
    ],
    ids=repr,
)
def test_good_combinations_have_no_fault(changes):
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
            (
                "num_attention_heads (12) must be divisible by model_parallel (8); "
                "set model_parallel to one of 1, 2, 3, 4, 6, 12"
            ),
        ),
        (
            {"model": {"model_type": "gpt2"}, "parallel": {"model_parallel": 4}},
            (
                "vocab_size (50257) must be divisible by model_parallel (4); "
                "set vocab_size to 50260 (rows are added) or vocab_emb_dp to true"
            ),
        ),
        (
            {"parallel": {"pipeline_stage": 5, "micro_batch_num": 8}, "training": {"global_batch_size": 8}},
            (
                "num_hidden_layers (32) must be divisible by pipeline_stage (5); "
                "set pipeline_stage to one of 1, 2, 4, 8, 16, 32"
            ),
        ),
        (
            {"parallel": {"pipeline_stage": 4, "micro_batch_num": 2}},
            "micro_batch_num (2) must be at least pipeline_stage (4); set micro_batch_num to 4 or more",
        ),
        (
            {"parallel": {"expert_parallel": 2}},
            "expert_parallel (2) needs a mixture of experts, and llama has none; set expert_parallel to 1",
        ),
        (
            {"parallel": {"use_seq_parallel": True}},
            (
                "use_seq_parallel (true) needs model_parallel (1) greater than 1; "
                "set use_seq_parallel to false or model_parallel to 2 or more"
            ),
        ),
        (
            {"parallel": {"enable_parallel_optimizer": True}},
            (
                "enable_parallel_optimizer (true) needs data_parallel (1) greater than 1; "
                "set enable_parallel_optimizer to false or data_parallel to 2 or more"
            ),
        ),
        (
            {"training": {"global_batch_size": 30, "gradient_accumulation_steps": 2}, "parallel": {"data_parallel": 4}},
            (
                "global_batch_size (30) must be divisible by data_parallel (4) x gradient_accumulation_steps (2) = 8; "
                "set global_batch_size to 24 or 32"
            ),
        ),
        (
            {"parallel": {"pipeline_stage": 2, "micro_batch_num": 64}},
            (
                "global_batch_size (32) must be divisible by data_parallel (1) x gradient_accumulation_steps (1) x "
                "micro_batch_num (64) = 64; set global_batch_size to 64"
            ),
        ),
        (
            {"data": {"seq_length": 8193}},
            "seq_length (8193) must be at most max_position_embeddings (8192); set seq_length to 8192 or less",
        ),
        (
            {"data": {"seq_length": 1022}, "parallel": {"model_parallel": 4, "use_seq_parallel": True}},
            "seq_length (1022) must be divisible by model_parallel (4); set seq_length to 1020 or 1024",
        ),
        (
            {
                "data": {"seq_length": 4},
                "parallel": {"model_parallel": 2, "use_seq_parallel": True, "context_parallel": 4},
            },
            "seq_length (4) must be divisible by context_parallel (4) x model_parallel (2) = 8; set seq_length to 8",
        ),
        (
            {"training": {"compute_dtype": "bfloat16"}},
            (
                "compute_dtype (bfloat16) is not used at amp_level (O0), which computes in float32; "
                "set amp_level to one of O1, O2, O3 or compute_dtype to float32"
            ),
        ),
        (
            {"training": {"amp_level": "O1"}},
            (
                "amp_level (O1) needs compute_dtype (float32) to be float16 or bfloat16; "
                "set compute_dtype to one of them or amp_level to O0"
            ),
        ),
        (
            {"training": {"amp_level": "O2", "compute_dtype": "float16"}},
            (
                "compute_dtype (float16) needs loss_scale (null): small gradients would become zero; "
                "set loss_scale to {} for its defaults or compute_dtype to bfloat16"
            ),
        ),
        (
            {"training": {**BF16, "loss_scale": LossScaleConfig()}},
            (
                "loss_scale is for compute_dtype float16 and changes nothing with compute_dtype (bfloat16); "
                "set loss_scale to null"
            ),
        ),
        (
            {"training": {**BF16, "device_target": "CPU"}},
            (
                "compute_dtype (bfloat16) is not supported by CPU, only by 910B, 910C; "
                "set compute_dtype to float16 with loss_scale, or to float32 with amp_level O0"
            ),
        ),
        (
            {"training": {**BF16, "chip": "910A"}},
            (
                "compute_dtype (bfloat16) is not supported by 910A, only by 910B, 910C; "
                "set compute_dtype to float16 with loss_scale, or to float32 with amp_level O0"
            ),
        ),
        ({"training": {"chip": "910b"}}, "chip ('910b') is not known; did you mean 910B?"),
        (
            {"training": {"chip": "910B", "device_target": "CPU"}},
            "chip (910B) does not run with device_target (CPU); set chip to one of CPU or to null",
        ),
        (
            {"training": {"sink_size": 4, "device_target": "CPU"}},
            "sink_size (4) needs Ascend, and the device is CPU; set sink_size to 1",
        ),
        (
            {"lr_schedule": {"warmup_steps": 100}},
            "warmup_steps (100) must be less than train_steps (100); set warmup_steps to 99 or less",
        ),
        (
            {"lr_schedule": {"warmup_steps": 60, "total_steps": 50}},
            "warmup_steps (60) must be less than total_steps (50); set warmup_steps to 49 or less",
        ),
        (
            {"lr_schedule": {"type": "wsd", "warmup_steps": 60, "decay_steps": 50}},
            "warmup_steps (60) + decay_steps (50) must be at most train_steps (100); set decay_steps to 40 or less",
        ),
        (
            {"lr_schedule": {"decay_steps": 50}},
            (
                "decay_steps (50) belongs to type wsd and changes nothing with type (cosine); "
                "set decay_steps to null or type to wsd"
            ),
        ),
        (
            {"lr_schedule": {"lr_end": 1.0}},
            "lr_end (1.0) must be at most learning_rate (0.0003)",
        ),
        (
            {"training": {"eval_steps": 10}},
            "eval_steps (10) needs data.eval_dataset (null); set data.eval_dataset or set eval_steps to null",
        ),
        (
            {"checkpoint": {"keep_every": 150}},
            (
                "keep_every (150) must be a multiple of save_steps (100), as only saved steps can be kept; "
                "set keep_every to 100 or 200"
            ),
        ),
        (
            {"model": {"num_key_value_heads": 5}},
            "num_attention_heads (32) must be divisible by num_key_value_heads (5)",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_a_broken_rule_is_one_fault_with_both_numbers_and_the_remedy(changes, expected):
    assert messages(**changes) == [expected]


def test_vocab_emb_dp_keeps_the_vocabulary_whole():
    assert messages(model={"model_type": "gpt2"}, parallel={"model_parallel": 4, "vocab_emb_dp": True}) == []


def test_the_remedies_of_a_fault_are_legal_together():
    for degree in (1, 2, 4, 8):
        assert messages(parallel={"model_parallel": degree}) == []


def test_rules_on_a_section_that_is_missing_are_left_out():
    given = sections(training={"global_batch_size": 7}, parallel={"data_parallel": 2, "model_parallel": 16})
    assert len(cross_faults(given)) == 2
    del given["model"]
    assert [fault.fields[0] for fault in cross_faults(given)] == ["training.global_batch_size"]


def test_every_field_that_a_fault_names_exists():
    broken = sections(
        model={"num_key_value_heads": 5, "head_dim": 63},
        data={"seq_length": 9001},
        lr_schedule={"warmup_steps": 100, "decay_steps": 5, "lr_end": 1.0},
        training={
            "amp_level": "O1",
            "sink_size": 2,
            "device_target": "CPU",
            "eval_batches": 1,
            "loss_scale": LossScaleConfig(),
        },
        checkpoint={"keep_every": 7},
        parallel={"model_parallel": 7, "pipeline_stage": 5, "expert_parallel": 2, "context_parallel": 2},
    )
    faults = cross_faults(broken)
    assert len(faults) > 12
    for fault in faults:
        for name in fault.fields:
            section, _, key = name.partition(".")
            assert key in type(broken[section]).model_fields, name


def loaded(**changes: dict[str, Any]) -> LoadedConfig:
    """A configuration whose parallel_config came from p.yaml."""
    places: dict[tuple[str, ...], Origin] = {}
    for line, key in enumerate(ParallelConfig.model_fields, start=2):
        places["parallel_config", key] = Origin("p.yaml", line)
    return LoadedConfig(RunConfig(**sections(**changes)), Origins(places))


def test_data_parallel_is_trained():
    assert not_trainable_yet(loaded(parallel={"data_parallel": 8, "vocab_emb_dp": True, "micro_batch_num": 4})) == []


def test_what_is_not_trained_yet_is_listed_with_its_place():
    degrees = {"model_parallel": 2, "context_parallel": 2, "pipeline_stage": 2}
    problems = not_trainable_yet(loaded(parallel={**degrees, "data_parallel": 2, "enable_parallel_optimizer": True}))
    assert [str(problem) for problem in problems] == [
        "model_parallel (2) is not trained by this version yet; set model_parallel to 1 (p.yaml:3)",
        "context_parallel (2) is not trained by this version yet; set context_parallel to 1 (p.yaml:4)",
        "pipeline_stage (2) is not trained by this version yet; set pipeline_stage to 1 (p.yaml:6)",
        "enable_parallel_optimizer (true) is not trained by this version yet; set it to false (p.yaml:12)",
    ]


def test_what_auto_left_open_is_checked_once_the_device_is_known():
    open_config = loaded(training={**BF16, "sink_size": 2})
    assert unsupported_on(open_config, "Ascend") == []
    assert [problem.message.split(" ")[0] for problem in unsupported_on(open_config, "CPU")] == [
        "compute_dtype",
        "sink_size",
    ]


def test_a_config_for_a_chip_of_the_cluster_is_still_checked_against_the_cpu_that_auto_falls_back_to():
    config = loaded(training={**BF16, "chip": "910B"})
    assert unsupported_on(config, "Ascend") == []
    assert "bfloat16) is not supported by CPU" in unsupported_on(config, "CPU")[0].message


@pytest.mark.parametrize("number", [1, 2, 12, 49, 97, 14336])
def test_divisors_are_all_and_ascending(number):
    assert divisors(number) == [d for d in range(1, number + 1) if number % d == 0]
