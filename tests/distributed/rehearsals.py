"""A tiny model's training step, exported for simulated ranks and run on one device, for the tests of the rehearsal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tiny_runs
import yaml

from msllm.config.load import load_run_config, write_resolved
from msllm.config.sections import RunConfig
from msllm.config.yaml_text import dump_yaml
from msllm.parallel.mesh import Mesh
from msllm.parallel.world import World
from msllm.registry import MODEL_CONFIGS, build_model, sharding
from msllm.rehearsal.compare import Verdict, compare
from msllm.rehearsal.execute import load_arrays, place_job, record, run_jobs, save_arrays
from msllm.rehearsal.mindir import parse_model
from msllm.rehearsal.process import run_simulated_ranks
from msllm.training.build import build_step, get_tensors

STEPS = 2
Change = Callable[[Any, int], None]
"""Spoils the graph of a rank: (model, rank)."""


@dataclass(frozen=True)
class Rehearsal:
    """What is needed to execute a strategy: each rank's graph and layouts, and the answers of one device."""

    folder: Path
    mesh: Mesh
    results: list[dict[str, Any]]
    batches: np.ndarray
    expected: dict[str, np.ndarray]

    def verdicts(self, changes: Mapping[str, Change | None]) -> dict[str, Verdict]:
        """Name -> verdict on what each rank computes with its graph, spoilt by `change(model, rank)` where there is one."""
        held = [result["parameters"] for result in self.results]
        return {name: compare(self.expected, answers, held) for name, answers in self.answers(changes).items()}

    def answers(self, changes: Mapping[str, Change | None]) -> dict[str, list[dict[str, np.ndarray]]]:
        """Name -> what each rank computes. One start of the processes for all, as that takes the most time."""
        folders = {name: self.folder / name for name in changes}
        files = {}
        for name, change in changes.items():
            files[name] = place_job(self.graphs(name, change), self.batches, self.mesh, folders[name])
        run_jobs(list(folders.values()), self.mesh.size, self.folder / "logs", timeout=240)
        return {name: [load_arrays(file) for file in of_ranks] for name, of_ranks in files.items()}

    def graphs(self, name: str, change: Change | None) -> list[Path]:
        """Each rank's graph, changed in a folder called `name`."""
        graphs = [self.folder / f"rank_{rank}.mindir" for rank in range(self.mesh.size)]
        if change is None:
            return graphs
        folder = self.folder / name
        folder.mkdir()
        for rank, graph in enumerate(graphs):
            model = parse_model(graph.read_bytes())
            change(model, rank)
            (folder / graph.name).write_bytes(model.SerializeToString())
        return [folder / graph.name for graph in graphs]


def prepare(
    folder: Path,
    settings: list[str],
    parallel: list[str],
    model: dict[str, Any] = tiny_runs.LLAMA,
    evaluation: bool = False,
) -> Rehearsal:
    """Export every rank of a strategy, and run the same steps on one device from the same weights; its evaluation too."""
    folder.mkdir(parents=True)
    file = tiny_runs.write_config(folder / "run.yaml", tiny_runs.write_data(folder / "data"), steps=10)
    file.write_text(dump_yaml({**yaml.safe_load(file.read_text()), "model": {**model, "num_hidden_layers": 2}}))
    config = _load(folder, [*settings, *parallel])
    random = np.random.default_rng(5)
    shape = (STEPS, config.training.global_batch_size, config.data.seq_length + 1)
    batches = random.integers(0, config.model.vocab_size, shape, dtype=np.int32)
    expected = _single_device(_load(folder, settings), random, batches, folder / "weights.npz")

    write_resolved(config, folder / "resolved.yaml")
    mesh = Mesh.from_config(config.parallel_config)
    spec = {
        "config": str(folder / "resolved.yaml"),
        "weights": str(folder / "weights.npz"),
        "executable": True,
        "run": False,
    }
    results = run_simulated_ranks(
        lambda rank: {
            **spec,
            "mindir": str(folder / f"rank_{rank}"),
            "evaluation": str(folder / f"evaluation_{rank}") if evaluation else None,
        },
        range(mesh.size),
        size=mesh.size,
        folder=folder,
        processes=2,
    )
    return Rehearsal(folder, mesh, results, batches, expected)


def _load(folder: Path, sets: list[str]) -> RunConfig:
    return load_run_config([folder / "run.yaml"], None, sets, MODEL_CONFIGS).config


def _single_device(config: RunConfig, random: Any, batches: np.ndarray, file: Path) -> dict[str, np.ndarray]:
    import mindspore
    from mindspore import Tensor

    # The first of a session to import MindSpore, where this file is run alone: before any kernel (see conftest.py).
    mindspore.set_device("CPU")
    model = build_model(config.model)
    for parameter in model.get_parameters():
        noise = random.normal(size=parameter.shape) * 0.1
        parameter.set_data(Tensor((noise + ("norm" in parameter.name)).astype(np.float32)))
    step = build_step(config, model, World(), sharding(config.model))
    save_arrays(file, {name: value.copy() for name, value in get_tensors(step)[0].items()})
    return record(step, batches)
