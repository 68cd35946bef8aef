"""One simulated rank, in a process of its own: builds the training step, compiles it, and says what came out.

    python -m msllm.rehearsal.worker SPEC.json RESULT.json

The environment (`msllm/rehearsal/environment.py`) makes MindSpore compile for Ascend without a device. A graph that will be
executed on CPU afterwards is built from elementary operations and written as MindIR, with given weights; any other one is
built as it trains, with weights that are never allocated.
"""

from __future__ import annotations

import json
import math
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

from msllm.config.load import load_run_config
from msllm.files import write_atomic
from msllm.registry import MODEL_CONFIGS, build_model, sharding
from msllm.rehearsal.collectives import collectives_of


def main(spec_file: str, result_file: str) -> None:
    """Do what the spec says and leave the process, as MindSpore may crash while it ends under simulation."""
    spec = json.loads(Path(spec_file).read_text())
    result = rehearse(spec)
    write_atomic(Path(result_file), json.dumps(result))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def rehearse(spec: dict[str, Any]) -> dict[str, Any]:
    """The result for one rank.

    `spec`: config, a YAML file with every value; rank; weights, an .npz of full tensors to start from, or null; mindir, a
    file to write the graph to, or null; evaluation, the same for the graph that evaluates, or left out; executable, whether
    the graphs will be run on CPU; run, whether to call the step, which at MS_SIMULATION_LEVEL=1 plans the device memory.
    """
    import mindspore as ms
    from mindspore.nn.utils import no_init_parameters

    from msllm.layers.backend import composed_only
    from msllm.parallel.mesh import Mesh
    from msllm.parallel.slices import slice_problems, weight_slice
    from msllm.parallel.world import init_world
    from msllm.training.build import build_row_loss, build_step

    config = load_run_config([Path(spec["config"])], None, [], MODEL_CONFIGS).config
    parallel, rank = config.parallel_config, spec["rank"]
    world = init_world(parallel, "Ascend")
    mesh = Mesh.from_config(parallel)
    ms.set_seed(config.training.seed)
    # no_init_parameters: slices are shapes until a value is asked for, so that 70B parameters take no memory here.
    with composed_only() if spec["executable"] else no_init_parameters():
        model = build_model(config.model)
        if spec["weights"]:
            _set_weights(model, spec["weights"])
        step = build_step(config, model, world, sharding(config.model), reuse=not spec["executable"])
    expected = [weight_slice(weight, mesh, parallel) for weight in step.weights]
    full_shapes = {parameter.name: tuple(parameter.shape) for parameter in step.get_parameters()}
    tokens = _tokens(config.training.global_batch_size // mesh.data, config.data.seq_length)

    started = time.perf_counter()
    graph = _compile(step, tokens)
    seconds = time.perf_counter() - started
    layouts = step.parameter_layout_dict
    result = {
        "rank": rank,
        "stage": mesh.stage(rank),
        "compile_seconds": seconds,
        "host_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "slice_problems": slice_problems(step.weights, expected, layouts) if mesh.size > 1 else [],
        "parameters": _parameters(step, layouts, full_shapes, mesh.size),
        "collectives": collectives_of(graph, rank),
    }
    if spec["mindir"]:
        ms.export(step, tokens, file_name=spec["mindir"], file_format="MINDIR")
    if spec.get("evaluation"):
        row_loss = build_row_loss(config, model, world, sharding(config.model))
        row_loss.set_train(False)
        rows = _tokens(config.training.global_batch_size // mesh.data, config.data.seq_length + 1)
        ms.export(row_loss, rows, file_name=spec["evaluation"], file_format="MINDIR")
    if spec["run"]:
        # Compiles once more: a graph made for the device's plan no longer gives out the one that collectives are counted in.
        step(tokens)
        ms.runtime.synchronize()
        result["peak_bytes"] = int(ms.runtime.max_memory_allocated())
    return result


def _compile(step: Any, tokens: Any) -> bytes:
    """Compile the step for this rank; the distributed graph as a MindIR protobuf without the values of its parameters."""
    from mindspore.common.api import _cell_graph_executor as executor

    phase, _ = executor.compile(step, tokens, phase="export.mindir", do_convert=False)
    return executor._get_func_graph_proto(step, phase, "mind_ir", incremental=False)


def _tokens(rows: int, seq_length: int) -> Any:
    import numpy as np
    from mindspore import Tensor

    return Tensor(np.zeros((rows, seq_length + 1), np.int32))


def _set_weights(model: Any, file: str) -> None:
    import numpy as np

    from msllm.training.build import set_tensors

    with np.load(file) as tensors:
        set_tensors(model, dict(tensors))


def _parameters(step: Any, layouts: dict, full_shapes: dict[str, tuple[int, ...]], ranks: int) -> list[dict[str, Any]]:
    """Name, full shape, slice and layout of every parameter that this rank holds."""
    held = []
    for parameter in step.get_parameters():
        layout = layouts.get(parameter.name)
        if ranks > 1 and layout is None and math.prod(full_shapes[parameter.name]) > 1:
            continue
        held.append(
            {
                "name": parameter.name,
                "shape": full_shapes[parameter.name],
                "slice": tuple(parameter.shape),
                "dtype": str(parameter.dtype),
                "bytes": math.prod(parameter.shape) * parameter.dtype.itemsize,
                "layout": list(layout) if layout else None,
            }
        )
    return held


if __name__ == "__main__":
    main(*sys.argv[1:])
