"""The command `msllm check`: verdict, exit codes, JSON, and that it needs no MindSpore."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from msllm.cli import main

ROOT = Path(__file__).parents[3]
TINY = str(ROOT / "models/llama/configs/llama_tiny.yaml")
SEVEN = str(ROOT / "models/llama/configs/llama2_7b.yaml")
CLUSTER = str(ROOT / "clusters/910b_128_servers.yaml")


@pytest.fixture
def check(monkeypatch, capsys):
    """Call `msllm check` in this process: (exit code, stdout, stderr)."""

    def call(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["msllm", "check", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call


def settings(**parallel: object) -> list[str]:
    return [part for key, value in parallel.items() for part in ("--set", f"parallel_config.{key}={value}")]


def test_a_legal_strategy_is_told_what_it_amounts_to(check):
    code, out, err = check("-c", SEVEN, *settings(data_parallel=2, model_parallel=4), "--devices", "8")
    assert (code, err) == (0, "")
    assert "devices                8 of 910B 64 GB in 1 server" in out
    assert "warning: use_seq_parallel is false" in out
    assert out.endswith("legal: no rule is broken\n")


def test_every_violation_of_all_kinds_comes_at_once(check, tmp_path):
    cluster = tmp_path / "c.yaml"
    cluster.write_text("cluster:\n  servers: 2\n  chip: 910A\n")
    strategy = tmp_path / "p.yaml"
    strategy.write_text(
        "parallel_config:\n  model_parallel: 3\n  pipeline_stage: 3\nrecompute_config:\n  recompte: true\n"
    )
    code, out, err = check("-c", SEVEN, "-p", str(strategy), "--cluster", str(cluster), "-n", "32")
    assert (code, out) == (2, "")
    lines = err.splitlines()
    for part in (
        f"{strategy}:5: unknown key recompte in recompute_config; did you mean recompute?",
        "num_attention_heads (32) must be divisible by model_parallel (3)",
        "num_hidden_layers (32) must be divisible by pipeline_stage (3)",
        "micro_batch_num (1) must be at least pipeline_stage (3)",
        "--devices (32) must be at most 16, servers (2) x devices_per_server (8)",
        "compute_dtype (bfloat16) is not supported by 910A, only by 910B, 910C",
        "data_parallel (1) x model_parallel (3) x pipeline_stage (3) = 9 must equal the number of devices (32)",
    ):
        assert any(part in line for line in lines), part
    assert any(f"{SEVEN}:" in line and f"{strategy}:2" in line for line in lines)


def test_a_cluster_that_cannot_be_read_does_not_hide_the_strategys_faults(check, tmp_path):
    code, _, err = check("-c", SEVEN, *settings(model_parallel=3), "--cluster", str(tmp_path / "none.yaml"))
    assert code == 2
    assert "none.yaml: cannot read this configuration" in err
    assert "must be divisible by model_parallel (3)" in err


def test_a_cluster_without_devices_means_all_of_it(check):
    assert check("-c", SEVEN, *settings(data_parallel=128, model_parallel=8), "--cluster", CLUSTER)[0] == 0
    code, _, err = check("-c", SEVEN, *settings(data_parallel=64, model_parallel=8), "--cluster", CLUSTER)
    assert code == 2
    assert "= 512 must equal the number of devices (1024); set data_parallel to 128, or take 512 devices" in err
    arguments = [*settings(data_parallel=64, model_parallel=8), "--cluster", CLUSTER, "--devices", "512"]
    assert check("-c", SEVEN, *arguments)[0] == 0


def test_json_is_the_only_thing_on_stdout_for_either_verdict(check):
    code, out, err = check("-c", SEVEN, *settings(data_parallel=2, model_parallel=4), "--json")
    document = json.loads(out)
    assert (code, err, document["legal"], document["violations"]) == (0, "", True, [])
    assert document["groups"]["model_parallel"] == {
        "count": 2,
        "size": 4,
        "spans_servers": False,
        "link": "HCCS",
        "ranks": [0, 1, 2, 3],
    }
    code, out, err = check("-c", SEVEN, *settings(model_parallel=3, data_paralel=2), "--json")
    document = json.loads(out)
    assert (code, err, document["legal"]) == (2, "", False)
    assert "data_paralel" in document["violations"][0]["message"]


def test_it_needs_no_mindspore(tmp_path):
    """A module of that name that fails stands in for MindSpore; the import of anything heavy would show as well."""
    code = f"""
import sys
sys.argv = ["msllm", "check", "-c", {TINY!r}, "--cluster", {CLUSTER!r}, "--devices", "1"]
from msllm.cli import main
try:
    main()
except SystemExit as stopped:
    assert not stopped.code, stopped.code
heavy = {{"mindspore", "mindformers", "numpy", "pyarrow", "tokenizers"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "legal" in done.stdout
