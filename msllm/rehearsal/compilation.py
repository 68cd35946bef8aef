"""Compile a strategy's training step for some of its ranks, and say what each rank holds, sends and takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msllm.config.load import write_resolved
from msllm.config.sections import RunConfig
from msllm.errors import RunError
from msllm.hardware.allowances import allowances
from msllm.hardware.cluster import Cluster
from msllm.parallel.mesh import Mesh
from msllm.rehearsal.collectives import summarize
from msllm.rehearsal.process import run_simulated_ranks


def compile_ranks(
    config: RunConfig,
    ranks: Sequence[int],
    cluster: Cluster,
    folder: Path,
    *,
    memory: bool = False,
    processes: int = 1,
    done: Callable[[int], None] = lambda rank: None,
) -> list[dict[str, Any]]:
    """One report for each rank: rank, stage, compile_seconds, host_bytes, parameters, weights_bytes, optimizer_bytes,
    gradient_bytes, collectives (see `collectives.summarize`) and, with `memory`, the device's memory (see `_memory`).

    Args:
        config: of the run; it is compiled as it would train, with fused kernels and weights that are never allocated.
        ranks: to compile.
        cluster: where the ranks run.
        folder: for specs, results and logs.
        memory: let MindSpore's memory planner run too.
        processes: ranks that are compiled at once.
        done: called after each rank.

    Raises:
        SimulationFailed: a rank does not compile.
        RunError: MindSpore cut a weight otherwise than the step expects.
    """
    folder.mkdir(parents=True, exist_ok=True)
    resolved = folder / "run.yaml"
    write_resolved(config, resolved)
    mesh = Mesh.from_config(config.parallel_config)
    spec = {
        "config": str(resolved.resolve()),
        "weights": None,
        "mindir": None,
        "executable": False,
        "run": memory,
    }
    results = run_simulated_ranks(
        lambda rank: spec, ranks, size=mesh.size, level=int(memory), folder=folder, processes=processes, done=done
    )
    return [_report(result, mesh, cluster) for result in results]


def _report(result: dict[str, Any], mesh: Mesh, cluster: Cluster) -> dict[str, Any]:
    if result["slice_problems"]:
        raise RunError("; ".join(result["slice_problems"]))
    held = result["parameters"]
    sizes = {
        kind: sum(parameter["bytes"] for parameter in held if parameter["name"].startswith(prefixes))
        for kind, prefixes in (("gradient_bytes", "accu_grads."), ("optimizer_bytes", ("adam_m.", "adam_v.")))
    }
    weights = [q for q in held if not q["name"].startswith(("accu_grads.", "adam_"))]
    report = {
        "rank": result["rank"],
        "stage": result["stage"],
        "compile_seconds": result["compile_seconds"],
        "host_bytes": result["host_bytes"],
        "parameters": sum(math.prod(q["slice"]) for q in weights),
        "weights_bytes": sum(q["bytes"] for q in weights),
        **sizes,
        "slices": [{key: q[key] for key in ("name", "shape", "slice", "dtype", "bytes")} for q in weights],
        "collectives": summarize(result["collectives"], mesh, cluster.devices_per_server),
    }
    if "peak_bytes" in result:
        groups = {tuple(item["ranks"]) for item in result["collectives"] if len(item["ranks"]) > 1}
        report["memory"] = _memory(result["peak_bytes"], len(groups), report, cluster)
    return report


def _memory(peak: int, groups: int, report: dict[str, Any], cluster: Cluster) -> dict[str, Any]:
    """Bytes on the device: the planned peak and its parts, allowances for what the plan counts as nothing, and the chip's.

    Activations are what the peak has beyond weights, optimizer and accumulated gradients, so gradients that live for a moment
    are among them.
    """
    known = report["weights_bytes"] + report["optimizer_bytes"] + report["gradient_bytes"]
    beside = allowances(peak, groups)
    total = peak + sum(beside.values())
    return {
        "peak_bytes": peak,
        "activation_bytes": max(peak - known, 0),
        "groups": groups,
        **beside,
        "total_bytes": total,
        "hbm_bytes": cluster.hbm_gb << 30,
        "fits": total <= cluster.hbm_gb << 30,
    }
