"""Compiles steps that no check has seen, each in a fork of one process that has loaded MindSpore once.

    python compile_server.py    on simulated Ascend

Reads lines of JSON {config, rank, size, log} and answers each with one of {error, slice_problems}; error is null where the step
compiled.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from msllm.config.sections import RunConfig, Section
from msllm.registry import MODEL_CONFIGS

SECONDS = 600
"""After which a compilation counts as failed."""


def sections_of(values: dict[str, Any]) -> dict[str, Section]:
    """Sections that are valid by themselves and may not fit together."""
    kinds: dict[str, Any] = {name: field.annotation for name, field in RunConfig.model_fields.items()}
    kinds["model"] = MODEL_CONFIGS[values["model"]["model_type"]]
    return {name: kind.model_validate(values.get(name, {})) for name, kind in kinds.items()}


def unchecked(files: list[Path], *_: Any) -> SimpleNamespace:
    """In the place of `load_run_config`."""
    return SimpleNamespace(config=RunConfig(**sections_of(yaml.safe_load(files[0].read_text()))))


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Compile for one rank, in a child that ends with it."""
    from msllm.rehearsal import worker

    worker.load_run_config = unchecked
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    signal.alarm(SECONDS)
    os.environ.update(RANK_ID=str(request["rank"]), RANK_SIZE=str(request["size"]))
    spec = {"config": request["config"], "rank": request["rank"], "weights": None, "mindir": None}
    try:
        result = worker.rehearse({**spec, "executable": False, "run": False})
    except Exception as error:
        traceback.print_exc()
        return {"error": f"{type(error).__name__}: {error}", "slice_problems": []}
    return {"error": None, "slice_problems": result["slice_problems"]}


def main() -> None:
    import mindspore  # noqa: F401

    for line in sys.stdin:
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            os.write(writer, json.dumps(answer(json.loads(line))).encode())
            os._exit(0)  # MindSpore may crash while it ends under simulation
        os.close(writer)
        with os.fdopen(reader) as pipe:
            given = pipe.read()
        os.waitpid(child, 0)
        print(given or json.dumps({"error": "the process died", "slice_problems": []}), flush=True)


if __name__ == "__main__":
    main()
