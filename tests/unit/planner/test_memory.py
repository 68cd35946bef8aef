"""The estimate of device memory against MindSpore's own memory planner (tests/golden/make_memory.py), and what it must obey."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from msllm.config.sections import RunConfig
from msllm.planner.memory import estimate_memory

GOLDEN = Path(__file__).parents[2] / "golden"
sys.path.insert(0, str(GOLDEN))
from make_memory import configuration, settings_of  # noqa: E402

MEASURED = json.loads((GOLDEN / "memory.json").read_text())


def estimate(name: str, **changes: object) -> list:
    settings = settings_of(name) | {key.replace("__", "."): value for key, value in changes.items()}
    return estimate_memory(configuration(settings))


@pytest.mark.parametrize("name", MEASURED)
def test_the_estimate_is_within_15_percent_of_the_plan(name):
    assert MEASURED[name]["settings"] == settings_of(name), "measure it again with make_memory.py"
    stages = estimate(name)
    for stage, peak in MEASURED[name]["peak_bytes"].items():
        assert stages[int(stage)].total == pytest.approx(peak, rel=0.15)


def test_enough_was_measured_also_of_what_the_estimate_was_not_derived_from():
    assert len(MEASURED) >= 30
    assert sum(not entry["seen"] for entry in MEASURED.values()) >= 8


def totals(name: str, **changes: object) -> int:
    return max(stage.total for stage in estimate(name, **changes))


@pytest.mark.parametrize(
    "less",
    [
        {"recompute_config__recompute": True},
        {"recompute_config__select_recompute": True},
        {"parallel_config__use_seq_parallel": True},
        {"parallel_config__enable_parallel_optimizer": True},
        {"parallel_config__model_parallel": 4},
        {"training__gradient_accumulation_steps": 2},
    ],
    ids=lambda less: next(iter(less)),
)
def test_every_means_against_lack_of_memory_saves_some(less):
    common = {
        "parallel_config__data_parallel": 2,
        "parallel_config__model_parallel": 2,
        "data__seq_length": 4096,
        "model__max_position_embeddings": 4096,
        "training__global_batch_size": 16,
    }
    assert totals("tp2", **{**common, **less}) < totals("tp2", **common)


def test_a_smaller_share_of_layers_by_offset_takes_less():
    even = estimate("pp2_m4")
    uneven = estimate("pp2_m4", parallel_config__offset=[-2, 2])
    assert uneven[0].total < even[0].total and uneven[1].total > even[1].total


def test_stages_hold_together_all_weights():
    config: RunConfig = configuration(settings_of("l8"))
    whole = estimate_memory(config)[0].weights
    assert sum(stage.weights for stage in estimate("pp4_m8")) == whole
    assert estimate("dp8_zero")[0].weights == pytest.approx(whole / 8, rel=0.01)
