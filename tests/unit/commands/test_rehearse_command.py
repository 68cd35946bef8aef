"""`msllm rehearse` without its compilations: what it refuses, what it prints, what it leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from msllm.cli import app
from msllm.errors import InputError, RunError
from msllm.rehearsal import compilation, proof
from msllm.rehearsal.process import SimulationFailed

ROOT = Path(__file__).parents[3]
TINY = ["-c", str(ROOT / "models/llama/configs/llama_tiny.yaml")]
STRATEGY = ["-p", str(ROOT / "parallel_configs/tiny_dp2_mp2_pp2.yaml")]


def result(rank: int, peak: int) -> dict[str, Any]:
    """What the worker of a rank answers."""
    weight = {"name": "w", "shape": [64, 32], "slice": [32, 32], "dtype": "Float32", "bytes": 4096, "layout": None}
    collective = {
        "kind": "AllReduce",
        "operation": "sum",
        "ranks": [0, 1],
        "bytes": 1000,
        "count": 3,
        "where": "layers.0",
    }
    return {
        "rank": rank,
        "stage": rank // 4,
        "compile_seconds": 5.0,
        "host_bytes": 1 << 30,
        "slice_problems": [],
        "parameters": [weight, {**weight, "name": "adam_m.w"}, {**weight, "name": "accu_grads.w"}],
        "collectives": [collective],
        "peak_bytes": peak,
    }


@pytest.fixture
def simulated(monkeypatch):
    """Answers in the place of simulated ranks; `peak` bytes of device memory each."""
    state: dict[str, Any] = {"peak": 20 << 30, "specs": []}

    def run(spec_of, ranks, *, size, level, folder, processes, done):
        state["specs"] += [(rank, size, level, spec_of(rank)) for rank in ranks]
        return [result(rank, state["peak"]) for rank in ranks]

    monkeypatch.setattr(compilation, "run_simulated_ranks", run)
    return state


def invoke(*arguments: str):
    return CliRunner().invoke(app, ["rehearse", *arguments])


def test_compile_reports_each_distinct_rank_as_json(simulated):
    done = invoke("compile", *TINY, *STRATEGY, "--json")
    assert done.exit_code == 0, done.exception
    report = json.loads(done.stdout)
    assert report["devices"] == 8
    assert [rank["rank"] for rank in report["ranks"]] == [0, 3, 4, 7]
    assert report["ranks"][0]["parameters"] == 32 * 32
    assert report["ranks"][0]["weights_bytes"] == report["ranks"][0]["optimizer_bytes"] == 4096
    assert report["ranks"][0]["collectives"] == [
        {"kind": "AllReduce", "axis": "tensor", "link": "inside", "number": 3, "bytes": 3000, "sent": 3000}
    ]
    assert {level for _, _, level, _ in simulated["specs"]} == {0}


def test_memory_counts_its_allowances_and_fits(simulated):
    done = invoke("memory", *TINY, *STRATEGY, "--ranks", "0", "--json")
    assert done.exit_code == 0, done.exception
    memory = json.loads(done.stdout)["ranks"][0]["memory"]
    assert memory["peak_bytes"] == 20 << 30
    assert memory["groups"] == 1 and memory["hccl_bytes"] == 200 << 20
    assert memory["activation_bytes"] == (20 << 30) - 3 * 4096
    assert memory["total_bytes"] == sum(
        memory[key] for key in ("peak_bytes", "hccl_bytes", "workspace_bytes", "fragmentation_bytes")
    )
    assert {level for _, _, level, _ in simulated["specs"]} == {1}


def test_memory_beyond_the_chips_is_a_failed_run_that_names_the_ranks(simulated):
    simulated["peak"] = 62 << 30
    done = invoke("memory", *TINY, *STRATEGY)
    assert isinstance(done.exception, RunError)
    assert "rank 0, 3, 4, 7: more memory than the chip has" in str(done.exception)
    assert "of 64.00 GB" in done.stdout


def test_the_tables_show_ranks_collectives_and_memory(simulated):
    done = invoke("memory", *TINY, *STRATEGY)
    for text in (
        "AllReduce",
        "tensor",
        "in a server",
        "weights 4.0 KB",
        "communication groups: 1",
        "nothing ran on an NPU",
    ):
        assert text in done.stdout, text


def test_an_illegal_strategy_is_refused_before_anything_is_compiled(simulated):
    done = invoke("compile", *TINY, "-s", "parallel_config.model_parallel=3")
    assert isinstance(done.exception, InputError)
    assert "must be divisible by model_parallel (3)" in str(done.exception)
    assert not simulated["specs"]


def test_a_number_of_devices_that_the_strategy_does_not_fill_is_refused(simulated):
    done = invoke("compile", *TINY, *STRATEGY, "--devices", "16")
    assert isinstance(done.exception, InputError)
    assert "16" in str(done.exception)


@pytest.mark.parametrize("command", ["compile", "memory", "run"])
def test_a_failed_compilation_is_explained_and_its_log_stays(monkeypatch, tmp_path, command):
    log = tmp_path / "worker.log"
    log.write_text("RuntimeError: The pointer[each_shape] is null.\n")

    def fail(*_args, **_kwargs):
        raise SimulationFailed("rank 0", log, "ended")

    monkeypatch.setattr(compilation, "run_simulated_ranks", fail)
    monkeypatch.setattr(proof, "run_simulated_ranks", fail)
    monkeypatch.setattr(proof, "run_module", lambda *_args, **_options: {"losses": []})
    done = invoke(command, *TINY, *STRATEGY)
    assert isinstance(done.exception, RunError)
    assert "The pointer[each_shape] is null" in str(done.exception)
    assert str(log) in str(done.exception)


def test_a_weight_that_mindspore_cuts_otherwise_is_an_error(simulated, monkeypatch):
    def run(spec_of, ranks, **_options):
        return [result(0, 1) | {"slice_problems": ["w: MindSpore gave a device (64, 32), expected (32, 32)"]}]

    monkeypatch.setattr(compilation, "run_simulated_ranks", run)
    done = invoke("compile", *TINY, *STRATEGY)
    assert isinstance(done.exception, RunError) and "expected (32, 32)" in str(done.exception)


@pytest.mark.parametrize("degree", [1, 16])
def test_a_numerical_rehearsal_runs_on_two_to_eight_processes(degree):
    sets = ("-s", f"parallel_config.data_parallel={degree}", "-s", "training.global_batch_size=16")
    done = invoke("run", *TINY, *sets)
    assert isinstance(done.exception, InputError)
    assert f"needs {degree} devices, and a numerical rehearsal runs on 2 to 8 processes" in str(done.exception)


def test_an_interleaved_pipeline_cannot_be_proven_and_what_can_be_is_said():
    done = invoke(
        "run", *TINY, "-p", str(ROOT / "parallel_configs/tiny_pp2_interleave2.yaml"), "-s", "model.num_hidden_layers=4"
    )
    assert isinstance(done.exception, InputError)
    assert "pp_interleave_num (2) cannot be proven on CPU" in str(done.exception)


def test_shrink_takes_auto_and_off_only():
    done = invoke("run", *TINY, *STRATEGY, "--shrink", "no")
    assert isinstance(done.exception, InputError) and "--shrink (no) must be auto or off" in str(done.exception)
