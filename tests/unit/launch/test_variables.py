"""Ranges of the variables that HCCL and MindSpore read, and the recipe of a job."""

from __future__ import annotations

import pytest

from msllm.launch.variables import Needed, advice, environment_problems, recipe, recommended_exec

SHORT = Needed(0.0, "")
LONG = Needed(2400.0, "saving takes long")


def problems(environment: dict[str, str], chip: str | None = "910B", needed: Needed = SHORT) -> list[str]:
    return [str(problem) for problem in environment_problems(environment, chip, needed)]


def test_legal_values_are_no_problem():
    legal = {
        "HCCL_CONNECT_TIMEOUT": "7200",
        "HCCL_EXEC_TIMEOUT": "0",
        "GLOG_v": "3",
        "HCCL_NPU_SOCKET_PORT_RANGE": "61000-61050,61100",
        "HCCL_HOST_SOCKET_PORT_RANGE": "auto",
        "HCCL_IF_BASE_PORT": "64000",
    }
    assert problems(legal) == []


def test_all_wrong_values_are_told_at_once():
    wrong = {
        "HCCL_CONNECT_TIMEOUT": "60",
        "GLOG_v": "warning",
        "HCCL_HOST_SOCKET_PORT_RANGE": "9-2",
        "MS_TOPO_TIMEOUT": "0",
    }
    assert problems(wrong) == [
        "HCCL_CONNECT_TIMEOUT (60) must be a whole number from 120 to 7200 seconds; set it so, or unset it",
        "GLOG_v (warning) must be a whole number from 0 to 4 (debug, info, warning, error, critical); set it so, or unset it",
        "MS_TOPO_TIMEOUT (0) must be a whole number from 1 to 2147483648 seconds; set it so, or unset it",
        "HCCL_HOST_SOCKET_PORT_RANGE (9-2) must be auto, or ports such as 60000-60050,60100; '9-2' is none",
    ]


@pytest.mark.parametrize(
    ("chip", "value", "expected"),
    [
        ("910B", "0", None),
        ("910B", "2147483647", None),
        ("910C", "2147483648", "0 to 2147483647 seconds (0: without end) on 910C"),
        ("910A", "17340", None),
        ("910A", "17341", "1 to 17340 seconds on 910A"),
        ("910A", "0", "1 to 17340 seconds on 910A, where 0 does not mean without end"),
        (None, "0", None),
        ("910B", "-1", "0 to 2147483647"),
    ],
)
def test_p27_the_range_of_hccl_exec_timeout_is_that_of_the_chip(chip: str | None, value: str, expected: str | None):
    found = problems({"HCCL_EXEC_TIMEOUT": value}, chip)
    assert (found == []) if expected is None else (len(found) == 1 and expected in found[0])


def test_p27_aiv_takes_shorter_times():
    [found] = problems({"HCCL_EXEC_TIMEOUT": "1836", "HCCL_OP_EXPANSION_MODE": "AIV"})
    assert "must be from 1 to 1091 seconds with HCCL_OP_EXPANSION_MODE (AIV)" in found


def test_p18_a_time_out_shorter_than_the_run_needs_is_refused_with_the_value_to_set():
    [found] = problems({"HCCL_EXEC_TIMEOUT": "1836"}, needed=LONG)
    assert found == "HCCL_EXEC_TIMEOUT (1836) must be at least 2400 seconds for this run: saving takes long"
    assert problems({"HCCL_EXEC_TIMEOUT": "0"}, needed=LONG) == []


def test_p18_910a_rounds_its_time_out_down():
    [found] = problems({"HCCL_EXEC_TIMEOUT": "2405"}, "910A", LONG)
    assert "(910A rounds it down to 2380) must be at least 2448 seconds" in found
    assert problems({"HCCL_EXEC_TIMEOUT": "2448"}, "910A", LONG) == []
    assert recommended_exec(Needed(1e9, ""), "910A") == 17340


def test_the_recipe_keeps_what_the_user_set_and_adds_what_is_missing():
    mine = {"HCCL_CONNECT_TIMEOUT": "300", "GLOG_v": "1", "HOME": "/root"}
    found = {setting.name: (setting.value, setting.why) for setting in recipe(mine, 8, True, "910B", LONG)}
    assert found == {
        "GLOG_v": ("1", "of your environment"),
        "HCCL_CONNECT_TIMEOUT": ("300", "of your environment"),
        "MS_TOPO_TIMEOUT": ("600", "as msrun sets it"),
        "HCCL_EXEC_TIMEOUT": ("2400", "saving takes long"),
    }


def test_many_ranks_get_longer_time_outs_and_short_ones_are_advised_against():
    found = {setting.name: setting.value for setting in recipe({}, 256, True, "910B", SHORT)}
    assert found == {
        "MS_TOPO_TIMEOUT": "1800",
        "MS_NODE_TIMEOUT": "1800",
        "HCCL_CONNECT_TIMEOUT": "1800",
        "HCCL_EXEC_TIMEOUT": "1836",
    }
    assert list(advice({"HCCL_CONNECT_TIMEOUT": "600"}, 256)) == [
        "HCCL_CONNECT_TIMEOUT (600) is short for 256 ranks; 900 to 1800 seconds are advised"
    ]


def test_a_cpu_job_gets_no_hccl_variable_and_one_rank_gets_none_at_all():
    assert [setting.name for setting in recipe({}, 2, False, None, SHORT)] == ["MS_TOPO_TIMEOUT"]
    assert recipe({}, 1, True, "910B", SHORT) == []


def test_a_misspelt_variable_is_told():
    assert list(advice({"HCCL_CONECT_TIMEOUT": "600"}, 2)) == [
        "HCCL_CONECT_TIMEOUT is no variable that HCCL is known to read; did you mean HCCL_CONNECT_TIMEOUT?"
    ]
