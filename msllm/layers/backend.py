"""The questions that a layer may ask about the device, once, at construction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import mindspore as ms

_composed_only = False


def on_ascend() -> bool:
    """Whether the graph will be compiled for Ascend."""
    return bool(ms.get_context("device_target") == "Ascend")


def fused_kernels() -> bool:
    """Whether Ascend's fused kernels are to be used."""
    return on_ascend() and not _composed_only


@contextmanager
def composed_only() -> Iterator[None]:
    """Build the cells inside from elementary operations, even for Ascend: what the rehearsal executes on CPU."""
    global _composed_only
    before, _composed_only = _composed_only, True
    try:
        yield
    finally:
        _composed_only = before
