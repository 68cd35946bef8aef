"""Rules between sections: each broken one gives one fault that names both numbers and what is legal."""

from __future__ import annotations

import pytest
from valid_sections import loaded, messages, sections

from msllm.config.checks import cross_faults, unsupported_on
from msllm.config.remedies import divisors
from msllm.config.sections import LossScaleConfig

FP16 = {"amp_level": "O2", "compute_dtype": "float16", "loss_scale": LossScaleConfig()}
BF16 = {"amp_level": "O2", "compute_dtype": "bfloat16"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"model": {"model_type": "gpt2"}},
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
            {"data": {"seq_length": 8193}},
            "seq_length (8193) must be at most max_position_embeddings (8192); set seq_length to 8192 or less",
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
