"""Every strategy that is shipped is legal for the models of its name, and its name tells the truth."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from msllm.config.checks import wrong_device_number
from msllm.config.load import load_run_config
from msllm.config.origin import LoadedConfig
from msllm.config.stages import micro_batches
from msllm.hardware.cluster import usual_cluster
from msllm.planner.costs import micro_batch_size
from msllm.planner.verdict import verdict
from msllm.registry import MODEL_CONFIGS

ROOT = Path(__file__).parents[3]
STRATEGIES = sorted(ROOT.glob("parallel_configs/*.yaml"))
NAME = re.compile(
    r"(?P<model>tiny|llama[23]_\d+b)(_(?P<devices>\d+)p)?(_dp(?P<dp>\d+))?(_mp(?P<mp>\d+))?(_pp(?P<pp>\d+))?"
    r"(_(?P<switches>(sp|zero|interleave\d|recompute|_)+))?"
)


def command(path: Path) -> list[str]:
    """The `msllm check` line of a strategy's head, without its first two words; empty where there is none."""
    head = path.read_text().partition("\n\n")[0].replace("\\\n#", "").splitlines()
    lines = [line.removeprefix("# ") for line in head if line.startswith("# msllm check ")]
    return shlex.split(lines[0])[2:] if lines else []


def options(words: list[str], name: str) -> list[str]:
    return [words[i + 1] for i, word in enumerate(words) if word == name]


def load(path: Path, model: Path) -> LoadedConfig:
    """A model with a strategy and with what its head says to set."""
    return load_run_config([model], path, options(command(path), "--set"), MODEL_CONFIGS)


def model_of(path: Path) -> Path:
    """The model file that a strategy's name means."""
    model = path.stem.split("_")[0]
    name = "llama_tiny" if model == "tiny" else "_".join(path.stem.split("_")[:2])
    return ROOT / f"models/llama/configs/{name}.yaml"


@pytest.mark.parametrize("path", STRATEGIES, ids=lambda path: path.stem)
def test_a_strategy_is_legal_for_the_model_of_its_name(path: Path):
    config = load(path, model_of(path)).config
    found = verdict(config, usual_cluster("910B", config.parallel_config.device_num))
    tensor = found.figures["groups"].get("model_parallel")
    assert tensor is None or not tensor["spans_servers"]


@pytest.mark.parametrize(
    "path",
    [path for path in STRATEGIES if path.stem.startswith("tiny") and "pp" not in path.stem],
    ids=lambda path: path.stem,
)
def test_the_tiny_strategies_without_stages_are_legal_for_gpt2(path: Path):
    assert load(path, ROOT / "models/gpt2/configs/gpt2_tiny.yaml").config.model.model_type == "gpt2"


@pytest.mark.parametrize("path", STRATEGIES, ids=lambda path: path.stem)
def test_a_strategys_name_tells_the_truth(path: Path):
    name = NAME.fullmatch(path.stem)
    assert name is not None, "unknown form of name"
    loaded = load(path, model_of(path))
    config, parallel = loaded.config, loaded.config.parallel_config
    degrees = (parallel.data_parallel, parallel.model_parallel, parallel.pipeline_stage)
    assert degrees == tuple(int(name[degree] or 1) for degree in ("dp", "mp", "pp"))
    if name["devices"]:
        assert wrong_device_number(parallel, loaded.origins, int(name["devices"])) == []
        assert options(command(path), "--devices") == [name["devices"]]
        return
    switches = {
        "sp": parallel.use_seq_parallel,
        "zero": parallel.enable_parallel_optimizer,
        "interleave2": parallel.pp_interleave_num == 2,
        "recompute": config.recompute_config.recompute is True,
    }
    assert {switch for switch, on in switches.items() if on} == set(filter(None, (name["switches"] or "").split("_")))


@pytest.mark.parametrize("path", [path for path in STRATEGIES if command(path)], ids=lambda path: path.stem)
def test_the_command_in_a_strategys_head_names_its_own_files(path: Path):
    words = command(path)
    assert options(words, "--parallel") == [f"parallel_configs/{path.name}"]
    assert options(words, "--config") == [str(model_of(path).relative_to(ROOT))]


@pytest.mark.parametrize("readme", ["README.md", "README_CN.md"])
def test_the_tables_list_every_strategy_with_its_batch(readme: str):
    rows = [line.strip("| ").split(" | ") for line in (ROOT / "parallel_configs" / readme).read_text().splitlines()]
    listed = {row[0][1:].partition("]")[0]: row[1:] for row in rows if row[0].startswith("[") and len(row) > 1}
    assert sorted(listed) == sorted(path.stem for path in STRATEGIES)
    for path in STRATEGIES:
        config = load(path, model_of(path)).config
        devices, *rest = listed[path.stem]
        assert int(devices) == config.parallel_config.device_num
        if not path.stem.startswith("tiny"):
            assert int(rest[0]) == config.training.global_batch_size
            assert rest[1] == f"{micro_batches(config)} x {micro_batch_size(config)}"
            assert (rest[2] == "ZeRO") is config.parallel_config.enable_parallel_optimizer
            stages = verdict(config, usual_cluster("910B", int(devices))).figures["memory"]
            assert all(stage["fits"] for stage in stages)
            assert rest[-1].strip("| ") == str(round(max(stage["peak_bytes"] for stage in stages) / 2**30))
