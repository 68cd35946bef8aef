"""How long ranks of a run wait for each other."""

from __future__ import annotations

import json
from pathlib import Path

import tiny_runs

from msllm.commands.options import load_from_options
from msllm.launch.waiting import longest_wait, measured_rate, parameters

ROOT = Path(__file__).parents[3]


def config(name: str):
    return load_from_options([ROOT / name]).config


def test_a_model_has_about_as_many_parameters_as_its_name_says():
    assert abs(parameters(config("models/llama/configs/llama2_7b.yaml")) / 6.74e9 - 1) < 0.01
    assert abs(parameters(config("models/llama/configs/llama3_8b.yaml")) / 8.03e9 - 1) < 0.01


def test_p18_a_large_checkpoint_on_a_slow_disk_needs_longer_than_the_default(tmp_path: Path):
    needed = longest_wait(config("models/llama/configs/llama2_7b.yaml"), tmp_path / "new", lambda folder: 100e6)
    assert 2400 < needed.seconds < 2450
    assert needed.reason == (
        "ranks wait while the main one writes a checkpoint of about 80.9 GB at 100 MB/s, and 3 times that is safe"
    )


def test_a_small_model_is_not_measured(tmp_path: Path):
    tiny = tiny_runs.load(tiny_runs.write_config(tmp_path / "run.yaml", tmp_path / "data")).config

    def never(folder: Path) -> float:
        raise AssertionError

    assert longest_wait(tiny, tmp_path, never).seconds < 1


def test_what_a_run_has_taken_before_counts_for_its_evaluations_too(tmp_path: Path):
    records = [{"kind": "train", "other_seconds": seconds} for seconds in (0.1, 700.0, 0.2)]
    lines = [*map(json.dumps, records), json.dumps({"kind": "eval"}), '{"kind": "tr']
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    needed = longest_wait(config("models/llama/configs/llama2_7b.yaml"), tmp_path)
    assert needed.seconds == 2100.0
    assert needed.reason.startswith("its evaluation and checkpoint took 700 s between two steps before")


def test_the_rate_of_a_disk_is_measured_where_the_run_will_be(tmp_path: Path):
    assert measured_rate(tmp_path / "not" / "yet") > 0
    assert list(tmp_path.iterdir()) == []
