from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from msllm.training.metrics import MetricsFile, StepMetrics, duration, memory_bytes


def record(step: int = 1, **fields) -> StepMetrics:
    values = {"loss": 4.0, "lr": 1e-3, "grad_norm": 0.5, "loss_scale": 1.0, "overflow": False}
    times = {"step_seconds": 0.5, "data_seconds": 0.1, "compute_seconds": 0.3, "other_seconds": 0.1}
    counts = {"tokens_per_second": 256.0, "samples_seen": 8 * step, "memory_bytes": 1 << 20}
    return StepMetrics(step=step, **{**values, **times, **counts, **fields})


def test_each_record_is_one_line_on_the_disk_at_once(tmp_path: Path):
    file = MetricsFile(tmp_path / "metrics.jsonl", tmp_path / "board", 1)
    file.write_step(record(1))
    file.write_eval(1, 2.0)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    file.close()
    assert lines[0] == {"kind": "train", **record(1).__dict__}
    assert lines[1] == {"kind": "eval", "step": 1, "eval_loss": 2.0, "perplexity": pytest.approx(7.389, abs=1e-3)}


def test_numbers_that_json_cannot_hold_become_null(tmp_path: Path):
    file = MetricsFile(tmp_path / "metrics.jsonl", tmp_path / "board", 1)
    file.write_step(record(1, grad_norm=float("inf"), loss=float("nan")))
    file.write_eval(1, 1e6)
    file.close()
    train, evaluation = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert train["grad_norm"] is None and train["loss"] is None
    assert evaluation["perplexity"] > 1e300


def events(folder: Path) -> list:
    """Every event of TensorBoard's files, oldest file first: records of length, checksum, event, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found = []
    for file in sorted(folder.iterdir()):
        assert ".tfevents." in file.name  # what TensorBoard looks for
        content = file.read_bytes()
        while content:
            (length,) = struct.unpack("<Q", content[:8])
            found.append(Event.FromString(content[12 : 12 + length]))
            content = content[16 + length :]
    return found


def test_a_second_opening_adds_to_the_file_and_tells_tensorboard_where_it_goes_on(tmp_path: Path):
    for step in (1, 2):
        file = MetricsFile(tmp_path / "metrics.jsonl", tmp_path / "board", step)
        file.write_step(record(step, loss=4.0 / step))
        file.close()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
    found = events(tmp_path / "board")
    assert [event.step for event in found if event.HasField("session_log")] == [1, 2]
    points = {(event.step, value.tag): value.simple_value for event in found for value in event.summary.value}
    assert points[1, "train/loss"] == 4.0 and points[2, "train/loss"] == 2.0
    assert {tag for _, tag in points} == {f"train/{name}" for name in record().__dict__ if name != "step"}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.4, "0s"),
        (59.9, "59s"),
        (60, "1m00s"),
        (185, "3m05s"),
        (3720, "1h02m"),
        (float("inf"), "?"),
        (float("nan"), "?"),
    ],
)
def test_durations_are_short(seconds: float, text: str):
    assert duration(seconds) == text


def test_memory_on_cpu_is_that_of_this_process():
    assert memory_bytes("CPU") > 10 << 20
