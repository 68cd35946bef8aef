"""The numerical proof of a strategy: all ranks' graphs on CPU processes, compared with one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msllm.config.load import write_resolved
from msllm.config.sections import RunConfig
from msllm.parallel.mesh import Mesh
from msllm.rehearsal.compare import Verdict, compare
from msllm.rehearsal.environment import cpu_environment
from msllm.rehearsal.execute import execute, load_arrays, save_arrays
from msllm.rehearsal.process import run_module, run_simulated_ranks
from msllm.rehearsal.shrink import on_one_device

MOST_PROCESSES = 8


@dataclass(frozen=True)
class Proof:
    """What a numerical rehearsal has found."""

    verdict: Verdict
    losses: list[float]
    """Of the single device, step by step."""


def prove(
    config: RunConfig,
    steps: int,
    tolerance: float,
    folder: Path,
    processes: int,
    report: Callable[[str], None] = lambda text: None,
) -> Proof:
    """Train `steps` steps of `config`, a float32 run of at most 8 devices, both ways from the same weights and batches.

    Raises:
        RunError: a rank does not compile or its graph cannot run on CPU.
    """
    folder.mkdir(parents=True, exist_ok=True)
    mesh = Mesh.from_config(config.parallel_config)
    random = np.random.default_rng(config.training.seed)
    shape = (steps, config.training.global_batch_size, config.data.seq_length + 1)
    batches = random.integers(0, config.model.vocab_size, shape, dtype=np.int32)
    files = {name: folder / f"{name}.npz" for name in ("batches", "weights", "answers")}
    save_arrays(files["batches"], {"tokens": batches})
    write_resolved(on_one_device(config), folder / "single.yaml")
    write_resolved(config, folder / "parallel.yaml")

    report(f"running {steps} steps on one device")
    spec = {"config": str((folder / "single.yaml").resolve())}
    spec |= {name: str(file.resolve()) for name, file in files.items()}
    single = run_module(
        "msllm.rehearsal.single",
        spec,
        name="the single device",
        environment=cpu_environment(),
        folder=folder / "single",
    )
    report(f"compiling {mesh.size} ranks")
    compiled = run_simulated_ranks(
        lambda rank: {
            "config": str((folder / "parallel.yaml").resolve()),
            "weights": str(files["weights"].resolve()),
            "mindir": str((folder / f"graph_{rank}").resolve()),
            "executable": True,
            "run": False,
        },
        range(mesh.size),
        size=mesh.size,
        folder=folder,
        processes=processes,
        done=lambda rank: report(f"compiled rank {rank}"),
    )
    report(f"running {steps} steps on {mesh.size} processes")
    graphs = [folder / f"graph_{rank}.mindir" for rank in range(mesh.size)]
    answers = [load_arrays(file) for file in execute(graphs, batches, mesh, folder=folder / "run")]
    held = [result["parameters"] for result in compiled]
    return Proof(compare(load_arrays(files["answers"]), answers, held, tolerance), single["losses"])
