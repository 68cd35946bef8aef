from __future__ import annotations

from pathlib import Path

import pytest

from msllm.config.load import load_run_config, write_resolved
from msllm.config.stages import stage_layer_counts
from msllm.registry import MODEL_CONFIGS
from msllm.rehearsal.shrink import changes, executable, on_one_device, shrink

ROOT = Path(__file__).parents[3]
STRATEGIES = sorted((ROOT / "parallel_configs").glob("*.yaml"))


def config_of(strategy: Path) -> Path:
    """The model's YAML that a strategy is named for; llama_tiny for the tiny ones."""
    name = "_".join(strategy.stem.split("_")[:2])
    file = ROOT / "models" / "llama" / "configs" / f"{name}.yaml"
    return file if file.exists() else file.with_name("llama_tiny.yaml")


def load(strategy: Path, *sets: str):
    # Only whether the shrunk run is legal is asked here, not whether the batch of the YAML suits the strategy.
    sets = ("training.global_batch_size=8192", "model.num_hidden_layers=4", *sets) if "tiny" in strategy.name else sets
    sets = sets or ("training.global_batch_size=8192",)
    return load_run_config([config_of(strategy)], strategy, list(sets), MODEL_CONFIGS).config


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda path: path.stem)
def test_every_shipped_strategy_stays_legal_on_the_shrunk_model(strategy: Path, tmp_path: Path):
    small = executable(shrink(load(strategy)))
    write_resolved(small, tmp_path / "small.yaml")
    assert load_run_config([tmp_path / "small.yaml"], None, [], MODEL_CONFIGS).config == small
    assert small.model.hidden_size <= 2048 and small.model.num_hidden_layers <= 16
    counts = stage_layer_counts(small.model.num_hidden_layers, small.parallel_config)
    assert min(counts) >= 1


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda path: path.stem)
def test_the_single_device_run_of_every_shipped_strategy_is_legal(strategy: Path, tmp_path: Path):
    single = on_one_device(executable(shrink(load(strategy))))
    write_resolved(single, tmp_path / "single.yaml")
    loaded = load_run_config([tmp_path / "single.yaml"], None, [], MODEL_CONFIGS).config
    assert loaded.parallel_config.device_num == 1
    assert loaded.training.gradient_accumulation_steps == 1


def test_the_strategy_itself_is_not_changed_but_for_the_threshold_of_optimizer_parallel():
    given = load(ROOT / "parallel_configs" / "tiny_dp2_mp2_pp2_zero.yaml")
    small = executable(shrink(given))
    changed = {line.split()[0] for line in changes(given, small) if line.startswith("parallel_config.")}
    assert changed <= {"parallel_config.parallel_optimizer_config.parallel_optimizer_threshold"}


def test_what_is_changed_is_said():
    given = load(ROOT / "parallel_configs" / "tiny_mp2.yaml")
    lines = changes(given, executable(shrink(given)))
    assert "data.seq_length 128 -> 16" in lines
    assert any(line.startswith("model.hidden_size 448 -> ") for line in lines)


def test_a_vocabulary_that_is_not_cut_stays_odd():
    given = load(
        ROOT / "parallel_configs" / "tiny_mp2.yaml", "model.vocab_size=1001", "parallel_config.vocab_emb_dp=true"
    )
    assert shrink(given).model.vocab_size % 2 == 1
