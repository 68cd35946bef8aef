"""What is measured each step, and the three places that it goes to: console, metrics.jsonl, TensorBoard."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class StepMetrics:
    """One step. Seconds are wall time on this rank."""

    step: int
    loss: float
    """Mean over the global batch, in nats per token."""
    lr: float
    grad_norm: float
    """Before clipping."""
    loss_scale: float
    overflow: bool
    """The weights were left as they were."""
    tokens_per_second: float
    """Over all ranks."""
    samples_seen: int
    step_seconds: float
    data_seconds: float
    """Waiting for the batch."""
    compute_seconds: float
    """In the graph, until its results are here."""
    other_seconds: float
    """The rest: callbacks, and the record, evaluation and checkpoint of the step before."""
    memory_bytes: int
    """Device memory on Ascend (peak), resident memory of this process on CPU."""


def memory_bytes(device_target: str) -> int:
    """Peak device memory on Ascend, resident memory of this process elsewhere."""
    if device_target == "Ascend":
        import mindspore as ms

        return int(ms.runtime.max_memory_allocated())
    import psutil

    return int(psutil.Process().memory_info().rss)


def duration(seconds: float) -> str:
    """1h02m, 3m05s, 12s."""
    if not math.isfinite(seconds):
        return "?"
    whole = int(seconds)
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"


class MetricsFile:
    """metrics.jsonl (append, one line a record, flushed) and TensorBoard's event file."""

    def __init__(self, path: Path, tensorboard: Path, first_step: int):
        from tensorboardX import SummaryWriter

        self._file = open(path, "a", encoding="utf-8")
        self._board = SummaryWriter(str(tensorboard), purge_step=first_step)

    def write_step(self, metrics: StepMetrics) -> None:
        """One line `{"kind": "train", "step": ...}`; NaN and infinity become null, which JSON can hold."""
        self._write({"kind": "train", **asdict(metrics)})

    def write_eval(self, step: int, loss: float) -> None:
        """One line `{"kind": "eval", "step": ...}`."""
        self._write({"kind": "eval", "step": step, "eval_loss": loss, "perplexity": math.exp(min(loss, 700.0))})

    def _write(self, record: dict[str, Any]) -> None:
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
        self._file.write(json.dumps(finite) + "\n")
        self._file.flush()
        for key, value in finite.items():
            if key not in ("kind", "step") and value is not None:
                self._board.add_scalar(f"{record['kind']}/{key}", value, record["step"])

    def sync(self) -> None:
        """Have metrics.jsonl on the disk, even if power fails."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush both."""
        self._file.close()
        self._board.close()
