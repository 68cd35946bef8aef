"""The training step on one CPU device, in a process of its own: what the sharded graphs are compared with.

python -m msllm.rehearsal.single SPEC.json RESULT.json
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from msllm.config.load import load_run_config
from msllm.files import write_atomic
from msllm.parallel.world import World
from msllm.registry import MODEL_CONFIGS, build_model, sharding
from msllm.rehearsal.execute import load_arrays, record, save_arrays
from msllm.training.build import build_step, get_tensors

NOISE = 0.05
"""Added to all initial weights, so that no norm is all ones and no bias all zeros."""


def run(spec: dict[str, Any]) -> dict[str, Any]:
    """Run the steps.

    `spec`: config, a YAML file of a run on one device; batches, an .npz with int32 `tokens` (steps, batch, row); weights and
    answers, the .npz files to write: the initial weights, and what `execute.record` returns.
    """
    import mindspore as ms

    config = load_run_config([Path(spec["config"])], None, [], MODEL_CONFIGS).config
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    ms.set_seed(config.training.seed)
    model = build_model(config.model)
    random = np.random.default_rng(config.training.seed)
    for parameter in model.get_parameters():
        noise = NOISE * random.normal(size=parameter.shape)
        parameter.set_data(ms.Tensor((parameter.asnumpy() + noise).astype(np.float32)))
    step = build_step(config, model, World(), sharding(config.model))
    save_arrays(Path(spec["weights"]), {name: value.copy() for name, value in get_tensors(step)[0].items()})
    answers = record(step, load_arrays(Path(spec["batches"]))["tokens"])
    save_arrays(Path(spec["answers"]), answers)
    return {"losses": [float(value) for key, value in answers.items() if key.endswith("/loss")]}


if __name__ == "__main__":
    write_atomic(Path(sys.argv[2]), json.dumps(run(json.loads(Path(sys.argv[1]).read_text()))))
