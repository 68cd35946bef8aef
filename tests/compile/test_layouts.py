"""Every model under every strategy for a laptop: the slice of every parameter, as MindSpore's Ascend compiler cuts it.

A primitive without a strategy compiles without a word and leaves its weights whole, so each one is asked for.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import tiny_runs
import yaml

from msllm.config.load import load_run_config, write_resolved
from msllm.config.sections import ParallelConfig, RunConfig
from msllm.config.stages import layer_places
from msllm.config.yaml_text import dump_yaml
from msllm.parallel.mesh import Mesh
from msllm.registry import MODEL_CONFIGS
from msllm.rehearsal.process import run_simulated_ranks

ROOT = Path(__file__).parents[2]
STRATEGIES = sorted(path.stem for path in (ROOT / "parallel_configs").glob("tiny_*.yaml"))
VOCAB, TENSOR = "vocab", "tensor"
CUTS = {
    "llama": {
        r"embed_tokens\.weight|lm_head\.weight": (VOCAB, 1),
        r"(q|k|v|gate|up)_proj\.weight": (TENSOR, 1),
        r"(o|down)_proj\.weight": (1, TENSOR),
        r"(layernorm|model\.norm)\.weight": (1,),
    },
    "gpt2": {
        r"wte\.weight": (VOCAB, 1),
        r"wpe\.weight": (1, 1),
        r"(q_proj|k_proj|v_proj|c_fc)\.weight": (TENSOR, 1),
        r"(q_proj|k_proj|v_proj|c_fc)\.bias": (TENSOR,),
        r"(o_proj|c_proj)\.weight": (1, TENSOR),
        r"(o_proj|c_proj)\.bias|ln_(1|2|f)\.(weight|bias)": (1,),
    },
}
"""End of a name -> what its axes are cut by: the first table of models/<name>/sharding.py, written again."""
MODELS = {"llama": {**tiny_runs.LLAMA, "num_hidden_layers": 4}, "gpt2": {**tiny_runs.GPT2, "num_hidden_layers": 4}}
LAYER = re.compile(r"\.(?:layers|h)\.(\d+)\.")
TIED_IN_STAGES = [("gpt2", name) for name in STRATEGIES if "pp2" in name]
"""`msllm check` refuses these: GPT-2's head is its embedding, which would be on two stages."""
COVERING = {("llama", "tiny_dp2_mp2_pp2_zero"), ("gpt2", "tiny_dp2_mp2_sp")}
"""Tried by default; the rest takes minutes."""


def slice_shape(name: str, shape: tuple[int, ...], model: str, mesh: Mesh, parallel: ParallelConfig) -> tuple[int, ...]:
    base = re.sub(r"^(adam_m|adam_v|accu_grads)\.", "", name)
    [axes] = [axes for pattern, axes in CUTS[model].items() if re.search(f"({pattern})$", base)]
    cut = [{VOCAB: mesh.vocab, TENSOR: mesh.tensor}.get(axis, 1) for axis in axes]
    held = [length // parts for length, parts in zip(shape, cut)]
    same = mesh.data * mesh.tensor // math.prod(cut)
    whole = name.startswith("accu_grads.") and not parallel.parallel_optimizer_config.gradient_accumulation_shard
    if mesh.optimizer_parallel and held[0] % same == 0 and not whole:
        held[0] //= same
    return tuple(held)


def stage_of(name: str, config: RunConfig) -> int:
    places = layer_places(config.model.num_hidden_layers, config.parallel_config)
    if found := LAYER.search(name):
        return places[int(found[1])][0]
    return 0 if re.search(r"embed_tokens|wte|wpe", name) else places[-1][0]


@pytest.mark.parametrize(
    "model, strategy",
    [
        pytest.param(model, strategy, marks=() if (model, strategy) in COVERING else pytest.mark.extended)
        for model in MODELS
        for strategy in STRATEGIES
        if (model, strategy) not in TIED_IN_STAGES
    ],
)
def test_every_parameter_has_the_slice_of_its_models_table(model, strategy, tmp_path):
    file = tiny_runs.write_config(tmp_path / "run.yaml", tmp_path / "data")
    file.write_text(dump_yaml({**yaml.safe_load(file.read_text()), "model": MODELS[model]}))
    sets = ["training.device_target=Ascend"]
    if strategy.endswith("zero"):
        sets.append("parallel_config.parallel_optimizer_config.parallel_optimizer_threshold=0")
    config = load_run_config([file], ROOT / f"parallel_configs/{strategy}.yaml", sets, MODEL_CONFIGS).config
    write_resolved(config, tmp_path / "resolved.yaml")
    parallel = config.parallel_config
    mesh = Mesh.from_config(parallel)
    spec = {
        "config": str(tmp_path / "resolved.yaml"),
        "weights": None,
        "mindir": None,
        "executable": False,
        "run": False,
    }
    ranks = [stage * mesh.size // mesh.stages for stage in range(mesh.stages)]
    results = run_simulated_ranks(lambda rank: spec, ranks, size=mesh.size, folder=tmp_path, processes=2)
    seen = set()
    for stage, result in enumerate(results):
        assert result["slice_problems"] == []
        tensors = [held for held in result["parameters"] if math.prod(held["shape"]) > 1]
        for held in tensors:
            wanted = slice_shape(held["name"], tuple(held["shape"]), model, mesh, parallel)
            assert tuple(held["slice"]) == wanted, held["name"]
            assert stage_of(held["name"], config) == stage, held["name"]
            seen.add(held["name"])
    weights = {name for name in seen if not name.startswith(("adam_", "accu_grads."))}
    assert {f"adam_m.{name}" for name in weights} | {f"adam_v.{name}" for name in weights} <= seen
    layers = {int(found[1]) for name in weights if (found := LAYER.search(name))}
    assert layers == set(range(4)) and len(weights) == (2 + 1 + 4 * 9 if model == "llama" else 4 + 4 * 16)
