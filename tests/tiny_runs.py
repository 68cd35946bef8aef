"""Training runs small enough for tests: a configuration, a run in this process, a run as a command."""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from models.gpt2.config import Gpt2Config
from models.llama.config import LlamaConfig
from msllm.config.origin import LoadedConfig
from msllm.config.yaml_text import dump_yaml
from msllm.errors import MsllmError
from msllm.testing.datasets import counting_rows, write_dataset

VOCAB, SEQ_LENGTH, ROWS, BATCH = 64, 16, 101, 8

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
FLOAT16 = ("training.amp_level=O2", "training.compute_dtype=float16", "training.loss_scale={scale_window: 3}")


def llama_config(**fields: Any) -> LlamaConfig:
    return LlamaConfig.model_validate({**LLAMA, **fields})


def gpt2_config(**fields: Any) -> Gpt2Config:
    return Gpt2Config.model_validate({**GPT2, **fields})


def write_data(folder: Path, seed: int = 0, rows: int = ROWS, shards: int = 2) -> Path:
    """A dataset that the tiny models learn in a few steps."""
    write_dataset(folder, counting_rows(rows, SEQ_LENGTH, VOCAB, seed), VOCAB, shards)
    return folder


def write_config(file: Path, data: Path, steps: int = 6) -> Path:
    """A tiny Llama, a checkpoint each step."""
    sections = {
        "model": LLAMA,
        "data": {"train_dataset": str(data), "seq_length": SEQ_LENGTH},
        "optimizer": {"learning_rate": 1e-2},
        "training": {"train_steps": steps, "global_batch_size": BATCH, "device_target": "CPU"},
        "checkpoint": {"save_steps": 1, "keep_last": 100},
    }
    file.write_text(dump_yaml(sections))
    return file


def load(config: Path, *overrides: str) -> LoadedConfig:
    from msllm.commands.options import load_from_options

    return load_from_options([config], None, list(overrides))


def train(config: Path, output: Path, *overrides: str, resume: str = "no", callbacks: Sequence[str] = ()) -> Path:
    """What `msllm train` does after it has read its options, in this process; returns `output`."""
    from msllm.commands.train import run

    loaded = load(config, *overrides)
    gc.collect()  # what the run before has left: its lock, and cells whose hooks would make the graph compile twice
    try:
        run(loaded, output, resume=resume, init_weights=None, callbacks=list(callbacks), as_json=True)
    except MsllmError as error:
        raise error.with_traceback(None) from None  # whose frames would keep the lock
    return output


def played_data_sink(fn: Any, dataset: Any, sink_size: int, jit_config: Any) -> Any:
    """In the place of MindSpore's `data_sink`, by its contract: each call runs `fn` on the next `sink_size` batches."""
    batches = dataset.create_tuple_iterator(num_epochs=1)

    def sink():
        for _ in range(sink_size):
            output = fn(*next(batches))
        return output

    return sink


def command(*arguments: str | Path, cwd: Path, timeout: float = 120, **env: str) -> subprocess.CompletedProcess[str]:
    """`msllm ...` in a process of its own."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("msllm")), *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        env=environment(**env),
    )


def environment(**env: str) -> dict[str, str]:
    """This process's, with the environment's own commands and the tests' modules found first."""
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    modules = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    return os.environ | {"PATH": ":".join(paths), "PYTHONPATH": ":".join(filter(None, modules))} | env


def metrics(run: Path, kind: str = "train") -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == kind]


def losses(run: Path) -> list[tuple[int, float]]:
    """(step, loss) of every line, in the order of the file."""
    return [(line["step"], line["loss"]) for line in metrics(run)]


def checkpoint(run: Path, step: int) -> Path:
    return run / "checkpoints" / f"step_{step:08d}"


def weights(run: Path, step: int) -> bytes:
    """The file of a step's weights, byte for byte."""
    return (checkpoint(run, step) / "model.safetensors").read_bytes()


def tensors(run: Path, step: int, name: str = "model") -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(str(checkpoint(run, step) / f"{name}.safetensors"))
