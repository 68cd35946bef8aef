from __future__ import annotations

import pytest

from msllm.config.sections import ParallelConfig
from msllm.errors import InputError
from msllm.parallel.world import World, check_world, launched_processes, launched_rank, resolve_device_target

LAUNCH_VARIABLES = ("MS_WORKER_NUM", "RANK_SIZE", "RANK_ID", "MS_NODE_ID", "MS_ROLE")


@pytest.fixture(autouse=True)
def not_launched(monkeypatch: pytest.MonkeyPatch):
    for name in LAUNCH_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def test_a_process_on_its_own_is_rank_0_of_1():
    assert (launched_processes(), launched_rank()) == (1, 0)
    assert World().is_main


@pytest.mark.parametrize(
    ("environment", "processes", "rank"),
    [
        ({"MS_WORKER_NUM": "8", "RANK_SIZE": "8", "RANK_ID": "3"}, 8, 3),
        ({"MS_WORKER_NUM": "16", "MS_NODE_ID": "9"}, 16, 9),
        ({"RANK_SIZE": "4", "RANK_ID": "2"}, 4, 2),
    ],
    ids=["msrun", "msrun on several hosts", "rank table"],
)
def test_the_launchers_variables_are_read(monkeypatch, environment: dict[str, str], processes: int, rank: int):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert (launched_processes(), launched_rank()) == (processes, rank)
    check_world(ParallelConfig(data_parallel=processes))


def test_a_strategy_for_another_number_of_processes_is_refused_with_both_ways_out(monkeypatch):
    monkeypatch.setenv("MS_WORKER_NUM", "4")
    with pytest.raises(InputError) as error:
        check_world(ParallelConfig(data_parallel=2, model_parallel=4))
    text = str(error.value)
    assert "needs 8 processes (data_parallel 2 x model_parallel 4 x pipeline_stage 1), but 4 were started" in text
    assert "msrun --worker_num 8" in text


def test_auto_is_cpu_on_a_host_without_cards():
    assert resolve_device_target("auto") == "CPU"
    assert resolve_device_target("CPU") == "CPU"
    assert resolve_device_target("Ascend") == "Ascend"
