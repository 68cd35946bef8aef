"""A run tells its launcher where it is, from the compilation to the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny_runs

from msllm.parallel import progress


def test_every_phase_is_told_with_its_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    told: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(progress, "tell", lambda phase, **values: told.append((phase, values)))
    config = tiny_runs.write_config(tmp_path / "run.yaml", tiny_runs.write_data(tmp_path / "data"), steps=2)
    evaluation = (f"data.eval_dataset={tmp_path / 'data'}", "training.eval_batches=2", "checkpoint.save_steps=2")
    tiny_runs.train(config, tmp_path / "run", *evaluation)

    phases = [phase for phase, _ in told]
    assert phases[:3] == [progress.STARTING, progress.JOINING, progress.COMPILING]
    steps = [(phase, values["step"]) for phase, values in told if "step" in values]
    assert steps == [
        (progress.COMPILING, 1),
        (progress.STEP, 1),
        (progress.BATCH, 2),
        (progress.STEP, 2),
        (progress.STEP, 2),
        (progress.BATCH, 3),
    ]
    assert [values for phase, values in told if phase == progress.EVALUATING] == [{}, {"batches": 1}, {"batches": 2}]
    assert phases.count(progress.SAVING) == 1
    times = next(values for _, values in told if "own_seconds" in values)
    assert 0 <= times["own_seconds"] <= times["step_seconds"] and times["tokens_per_second"] > 0
