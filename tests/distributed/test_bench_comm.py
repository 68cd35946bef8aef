"""`msllm bench comm` on CPU ranks: figures of every pair and group, and their picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_runs

pytestmark = pytest.mark.distributed


def test_two_ranks_measure_each_other(tmp_path: Path):
    words = ["bench", "comm", "--workers", "2", "--sizes", "8K,64K", "--rounds", "2", "--device-target", "CPU"]
    done = tiny_runs.command(*words, "--output", "comm", "--json", cwd=tmp_path, timeout=240)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document == json.loads((tmp_path / "comm/comm.json").read_text())
    found = [(row["kind"], row["group"], row["bytes"]) for row in document["measurements"]]
    assert found == [
        ("AllReduce", "pair", 8192),
        ("AllReduce", "pair", 65536),
        ("AllReduce", "all", 8192),
        ("AllGather", "all", 8192),
        ("AllReduce", "all", 65536),
        ("AllGather", "all", 65536),
    ]
    assert all(row["seconds"] > 0 and row["gb_per_second"] > 0 for row in document["measurements"])
    assert document["servers"] == [0, 0] and document["nominal"] == {"inside": None, "between": None}
    assert (tmp_path / "comm/comm.svg").read_text().startswith("<svg")
