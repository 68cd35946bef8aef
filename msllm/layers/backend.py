"""The one question that a layer may ask about the device, once, at construction."""

from __future__ import annotations

import mindspore as ms


def on_ascend() -> bool:
    """Whether the graph will be compiled for Ascend, where fused kernels exist."""
    return bool(ms.get_context("device_target") == "Ascend")
