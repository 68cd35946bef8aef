"""What is measured each step, and the three places that it goes to: console, metrics.jsonl, TensorBoard."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
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
    """metrics.jsonl (append, one line a record, flushed) and the same curves for TensorBoard."""

    def __init__(self, path: Path, tensorboard: Path, first_step: int):
        self._file = open(path, "a", encoding="utf-8")
        self._curves = EventFile(tensorboard, first_step)

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
        curves = {k: float(v) for k, v in finite.items() if k not in ("kind", "step") and v is not None}
        self._curves.write(record["step"], {f"{record['kind']}/{name}": value for name, value in curves.items()})

    def sync(self) -> None:
        """Have metrics.jsonl on the disk, even if power fails."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Flush both. What a full disk does not take any more, of lines that are written already, is left out."""
        for close in (self._file.close, self._curves.close):
            with contextlib.suppress(OSError):
                close()


class EventFile:
    """TensorBoard's event file, written at once.

    tensorboardX's SummaryWriter hands events to a thread: one that dies, of a full disk, lets training wait for it forever.
    """

    FLUSH_SECONDS = 10.0

    def __init__(self, folder: Path, first_step: int):
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        folder.mkdir(parents=True, exist_ok=True)
        self._event = Event
        # The name holds the second; the suffix keeps processes apart that begin in the same one.
        self._writer = EventsWriter(str(folder / "events"), f".{first_step}.{os.getpid()}")
        self._flushed = time.monotonic()
        # Tells TensorBoard to forget what an earlier process wrote from this step on.
        start = SessionLog(status=SessionLog.START)
        self._writer.write_event(Event(wall_time=time.time(), step=first_step, session_log=start))

    def write(self, step: int, curves: Mapping[str, float]) -> None:
        """One point of each curve."""
        event = self._event(wall_time=time.time(), step=step)
        for name, value in curves.items():
            event.summary.value.add(tag=name, simple_value=value)
        self._writer.write_event(event)
        if time.monotonic() - self._flushed > self.FLUSH_SECONDS:
            self._writer.flush()
            self._flushed = time.monotonic()

    def close(self) -> None:
        """Flush and close."""
        self._writer.close()
