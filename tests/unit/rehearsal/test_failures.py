"""The logs are MindSpore 2.9.0's, of strategies that were compiled without being checked."""

from __future__ import annotations

from pathlib import Path

from msllm.config.load import load_run_config
from msllm.registry import MODEL_CONFIGS
from msllm.rehearsal.failures import explain_failure

CONFIG = Path(__file__).parents[3] / "models" / "llama" / "configs" / "llama_tiny.yaml"
VOCABULARY = """\
[ERROR] PARALLEL(4323,7f6b,python):2026-12-01-07:57:47.873.125 [mindspore/ccsrc/frontend/parallel/ops_info/operator_info.cc:248] \
CheckStrategyByVector] ExpInfo00: Input index 0, the strategy is ((1, 2),), shape is [256, 1024], shape value 1024 \
at dim index 1 \
cannot be divisible by strategy value 2
RuntimeError: Failure:operator Exp init failed

In file /some/where/msllm/layers/loss.py:68, 43~60/        normalizer = self.log(self.sum_exp(self.exp(shifted), -1))/
"""
MICRO_BATCHES = (
    "RuntimeError: The size of micro_batch must be greater than or equal to stage_num. But got the size of micro_batch is 1 "
    "and the stage_num is 2\n"
)
DEVICES = (
    "The context configuration parameter device_num' must be divisible by 8, or equal to 1, 2 or 4, but got the value of "
    "device_num: 3\nRuntimeError: Parallel init failed\n"
)


def loaded(*sets: str):
    return load_run_config([CONFIG], None, list(sets), MODEL_CONFIGS)


def test_a_size_that_is_not_divisible_is_named_with_the_fields_and_lines_of_the_yaml():
    [problem] = explain_failure(VOCABULARY, loaded("parallel_config.model_parallel=2", "training.device_target=Ascend"))
    assert "vocab_size (1024) cannot be cut in 2 parts, as model_parallel asks of operation Exp" in str(problem)
    assert "layers/loss.py:68: normalizer = self.log(" in str(problem)
    assert "llama_tiny.yaml:" in str(problem) and "--set parallel_config.model_parallel" in str(problem)


def test_too_few_micro_batches_are_said_with_both_numbers():
    [problem] = explain_failure(MICRO_BATCHES, loaded())
    assert "micro_batch_num (1) must be at least pipeline_stage (2)" in str(problem)


def test_a_number_of_devices_that_mindspore_does_not_take_is_said():
    [problem] = explain_failure(DEVICES, loaded())
    assert "MindSpore takes 1, 2, 4 or a multiple of 8 devices, and the strategy needs 3" in str(problem)


def test_an_unknown_failure_gives_its_last_words():
    [problem] = explain_failure("ValueError: first\nRuntimeError: The pointer[each_shape] is null.\n", loaded())
    assert str(problem) == "MindSpore could not compile the step: The pointer[each_shape] is null."


def test_a_process_that_said_nothing_is_told_apart():
    [problem] = explain_failure("", loaded())
    assert "ended without a message" in str(problem)
