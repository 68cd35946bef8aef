"""How long a rank of a run lets the others wait in a collective: while it writes a checkpoint, above all."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from msllm.config.sections import RunConfig
from msllm.launch.variables import Needed

SAFETY = 3.0
"""Disks of a cluster are slower when all write."""
SAMPLE_BYTES = 64 << 20
WORTH_MEASURING = 4 << 30
"""Below so many bytes even a slow disk is done long before the default."""
SLOW_DISK = 100e6
STATE_BYTES = 12
"""A parameter with its two moments, float32."""


def parameters(config: RunConfig) -> int:
    """About how many parameters the model has: embedding, head, and 12 h^2 a layer, or what its feed-forward says."""
    model = config.model
    hidden, layers = model.hidden_size, model.num_hidden_layers
    wide = int(getattr(model, "intermediate_size", None) or 4 * hidden)
    gated = 3 if model.model_type == "llama" else 2
    heads = model.num_attention_heads
    key_value = int(getattr(model, "num_key_value_heads", None) or heads)
    attention = 2 * hidden * hidden + 2 * hidden * hidden * key_value // heads
    tables = model.vocab_size * hidden * (1 if model.ties_embeddings else 2)
    return tables + layers * (attention + gated * hidden * wide)


def measured_rate(folder: Path) -> float:
    """Bytes a second that the disk of `folder` takes, of a sample."""
    while not folder.exists():
        folder = folder.parent
    block = os.urandom(1 << 20)
    started = time.perf_counter()
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(SAMPLE_BYTES >> 20):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    return SAMPLE_BYTES / (time.perf_counter() - started)


def longest_wait(config: RunConfig, output: Path, rate: Callable[[Path], float] = measured_rate) -> Needed:
    """The longest wait of a run, from what its folder has seen before, else from the size of a checkpoint.

    In an evaluation the ranks meet at every batch, so that one of them never waits longer than for the main rank's save; the
    record of an earlier start holds both (`other_seconds`).
    """
    seen = _seen(output / "metrics.jsonl")
    if seen is not None:
        seconds = SAFETY * seen
        reason = f"its evaluation and checkpoint took {seen:.0f} s between two steps before, and {SAFETY:g} times that is safe"
        return Needed(seconds, reason)
    size = STATE_BYTES * parameters(config)
    per_second = rate(output) if size > WORTH_MEASURING else SLOW_DISK
    seconds = SAFETY * size / per_second
    reason = (
        f"ranks wait while the main one writes a checkpoint of about {size / 1e9:.1f} GB at {per_second / 1e6:.0f} MB/s, and "
        f"{SAFETY:g} times that is safe"
    )
    return Needed(seconds, reason)


def _seen(metrics: Path) -> float | None:
    """The longest time that rank 0 has spent between two steps; None without a record."""
    longest: float | None = None
    try:
        with open(metrics, encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                if record.get("kind") == "train":
                    longest = max(longest or 0.0, float(record["other_seconds"]))
    except (OSError, ValueError, KeyError, TypeError):
        return longest
    return longest
