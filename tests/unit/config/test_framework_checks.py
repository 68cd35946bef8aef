"""What MindSpore's compiler takes as a job on Ascend. The expectations were run: see `refused` and `compiled`."""

from __future__ import annotations

import pytest
from valid_sections import loaded, messages

from msllm.config.checks import unsupported_on
from msllm.config.framework_checks import layout
from msllm.config.sections import ParallelConfig


def degrees(dp: int, mp: int = 1, pp: int = 1) -> ParallelConfig:
    return ParallelConfig(data_parallel=dp, model_parallel=mp, pipeline_stage=pp, micro_batch_num=pp)


compiled = [(1, 2), (8192, 1), (24, 1), (12, 2), (3, 8), (6, 4), (6, 4, 2), (24, 1, 2), (1, 1, 2), (2, 2, 2)]
"""Degrees that MindSpore 2.9.0 compiled for simulated Ascend."""
refused = [(3,), (8, 3), (2, 6, 2), (3, 4, 2)]
"""Degrees that it ended with an error for."""


@pytest.mark.parametrize("case", compiled)
def test_what_mindspore_compiles_is_accepted(case):
    assert list(layout(degrees(*case))) == []


@pytest.mark.parametrize("case", refused)
def test_what_mindspore_refuses_is_refused(case):
    assert len(list(layout(degrees(*case)))) == 1


@pytest.mark.parametrize("exponents", [(a, b, c) for a in range(8) for b in range(5) for c in range(5)])
def test_powers_of_two_are_always_accepted(exponents):
    assert list(layout(degrees(*(2**e for e in exponents)))) == []


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (
            (3,),
            "data_parallel (3) x model_parallel (1) x pipeline_stage (1) = 3 must be 1, 2, 4 or a multiple of 8, which is what "
            "MindSpore takes on Ascend; choose degrees whose product is 1, 2, 4 or 8",
        ),
        (
            (3, 4),
            "data_parallel (3) x model_parallel (4) x pipeline_stage (1) = 12 must be 1, 2, 4 or a multiple of 8, which is what "
            "MindSpore takes on Ascend; choose degrees whose product is 8 or 16",
        ),
        (
            (8, 3),
            "model_parallel (3) makes the group of ranks 0 1 2, which MindSpore does not create: the part of a group in each "
            "server of 8 must be the same 1, 2, 4 or 8 ranks; set model_parallel to a power of two",
        ),
        (
            (3, 4, 2),
            "data_parallel (3) makes the group of ranks 0 4 8, which MindSpore does not create: the part of a group in each "
            "server of 8 must be the same 1, 2, 4 or 8 ranks; set data_parallel to a power of two",
        ),
    ],
)
def test_a_fault_names_the_group(case, expected):
    assert [fault.message for fault in layout(degrees(*case))] == [expected]


def test_cpu_may_train_on_any_number_of_processes_and_ascend_not():
    three = {"parallel": {"data_parallel": 3}, "training": {"global_batch_size": 3}}
    assert messages(**three) == []
    assert unsupported_on(loaded(**three), "CPU") == []
    assert "= 3 must be 1, 2, 4 or a multiple of 8" in unsupported_on(loaded(**three), "Ascend")[0].message
    three["training"]["device_target"] = "Ascend"
    assert len(messages(**three)) == 1
    assert unsupported_on(loaded(**three), "Ascend") == []
