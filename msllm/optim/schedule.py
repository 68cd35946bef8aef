"""Learning rate as a pure function of the global step. Imports no MindSpore."""

from __future__ import annotations

import numpy as np

from msllm.config.sections import LrScheduleConfig


def learning_rates(schedule: LrScheduleConfig, peak: float, train_steps: int) -> np.ndarray:
    """Rate of every step: (train_steps,) float32; element i is used by step i + 1.

    The warmup is linear and reaches `peak` at step `warmup_steps`; cosine (Loshchilov and Hutter 2017) and linear then
    fall to `lr_end`, reached at step `total_steps` and kept after it; wsd (Hu et al. 2024) stays at `peak` and falls
    linearly in its last `decay_steps`.
    """
    total = schedule.total_steps or train_steps
    warmup = schedule.warmup_steps
    step = np.arange(1, train_steps + 1, dtype=np.float64)
    if schedule.type == "constant":
        after = np.full(train_steps, peak)
    else:
        decay = total - warmup
        if schedule.type == "wsd":
            decay = min(decay, schedule.decay_steps or max(1, total // 10))
        progress = np.clip((step - (total - decay)) / max(decay, 1), 0.0, 1.0)
        shape = 0.5 * (1 + np.cos(np.pi * progress)) if schedule.type == "cosine" else 1 - progress
        after = schedule.lr_end + (peak - schedule.lr_end) * shape
    rates = np.where(step <= warmup, peak * step / max(warmup, 1), after)
    return rates.astype(np.float32)
