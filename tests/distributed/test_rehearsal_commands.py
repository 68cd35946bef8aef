"""The commands as a user types them, with real simulated ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.distributed


def rehearse(command: str, strategy: str, folder: Path, *more: str) -> dict:
    call = [sys.executable, "-c", "from msllm.cli import main; main()", "rehearse", command, "--json", "--jobs", "2"]
    call += ["-c", str(ROOT / "models/llama/configs/llama_tiny.yaml"), "-p", str(ROOT / "parallel_configs" / strategy)]
    done = subprocess.run([*call, *more], capture_output=True, text=True, cwd=folder, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_run_proves_a_pipeline(tmp_path: Path):
    proof = rehearse("run", "tiny_pp2.yaml", tmp_path, "--steps", "2")
    assert proof["passed"] and proof["compared"] > 100
    assert not (proof["beyond"] or proof["missing"] or proof["surplus"])
    assert list(tmp_path.iterdir()) == []


def test_memory_of_a_tensor_parallel_rank_is_less_than_that_of_a_whole_one(tmp_path: Path):
    half = rehearse("memory", "tiny_mp2.yaml", tmp_path, "--ranks", "0", "-s", "training.device_target=Ascend")
    whole = rehearse("memory", "tiny_dp1.yaml", tmp_path, "-s", "training.device_target=Ascend")
    [half_rank], [whole_rank] = half["ranks"], whole["ranks"]
    assert half_rank["memory"]["peak_bytes"] < 0.8 * whole_rank["memory"]["peak_bytes"]
    # Norms are whole on both, so a little more than half.
    assert whole_rank["parameters"] / 2 < half_rank["parameters"] < 0.51 * whole_rank["parameters"]
    assert {row["axis"] for row in half_rank["collectives"]} == {"tensor"}
