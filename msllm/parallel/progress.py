"""How a rank tells the launcher on its host where it is: a small JSON file, replaced at each change."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

FILE_VARIABLE = "MSLLM_PROGRESS_FILE"
STOP_VARIABLE = "MSLLM_STOP_FILE"
"""Path of the file whose appearance asks the ranks of a host to save and stop."""

STARTING, JOINING, COMPILING, STEP, BATCH, EVALUATING, SAVING = (
    "starting",
    "joining the other ranks",
    "compiling the step graph",
    "in the step",
    "waiting for the batch",
    "evaluating",
    "saving a checkpoint",
)
BEFORE_STEPS = (STARTING, JOINING, COMPILING)
PHASES = (*BEFORE_STEPS, BATCH, STEP, EVALUATING, SAVING)
"""In the order in which a rank comes to them; of two ranks at the same step, the later one is ahead."""


def tell(phase: str, **values: Any) -> None:
    """Say where this rank is; nothing without a launcher. `values` are numbers such as step, and stay until told anew.

    A full or lost disk is no reason to stop training: what cannot be written is left out.
    """
    path = os.environ.get(FILE_VARIABLE)
    if path is None:
        return
    _told.update(values, phase=phase)
    temporary = f"{path}.{os.getpid()}"
    with suppress(OSError):
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(_told, file)
        os.replace(temporary, path)


_told: dict[str, Any] = {}


def read(path: Path) -> Mapping[str, Any] | None:
    """What a rank has told last; None before the first time."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None


def stop_asked() -> bool:
    """Whether the launcher asks this rank to save and stop."""
    path = os.environ.get(STOP_VARIABLE)
    return path is not None and os.path.exists(path)
