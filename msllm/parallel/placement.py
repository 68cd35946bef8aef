"""Which pipeline stage each cell runs on, and what is computed again in the backward pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mindspore import nn

from msllm.config.sections import ParallelConfig, RecomputeConfig
from msllm.config.stages import layer_places, recomputed_layers


@dataclass
class Parts:
    """A model as a row of cells, from its `sharding.py`."""

    first: list[nn.Cell]
    """Before the layers: on the first stage."""
    layers: list[nn.Cell]
    """Dealt out over the stages."""
    last: list[nn.Cell]
    """After the layers: on the last stage."""
    cheap: list[list[Any]]
    """Of each layer the cells and primitives that take much memory and little time: what select_recompute computes again."""


def place_stages(parts: Parts, parallel: ParallelConfig) -> None:
    """Put every part on its pipeline stage and, where stages are interleaved, in its chunk."""
    if parallel.pipeline_stage == 1:
        return
    places = layer_places(len(parts.layers), parallel)
    ends = [(cell, places[0]) for cell in parts.first] + [(cell, places[-1]) for cell in parts.last]
    for cell, (stage, chunk) in [*ends, *zip(parts.layers, places)]:
        cell.pipeline_stage = stage
        cell.pipeline_segment = chunk


def place_last(cells: Sequence[nn.Cell], parts: Parts, parallel: ParallelConfig) -> None:
    """Put further cells where the last parts are."""
    if parallel.pipeline_stage > 1:
        for cell in cells:
            cell.pipeline_stage, cell.pipeline_segment = layer_places(len(parts.layers), parallel)[-1]


def recompute(parts: Parts, parallel: ParallelConfig, config: RecomputeConfig) -> None:
    """Mark what `recompute_config:` says is computed again."""
    full, selective = recomputed_layers(len(parts.layers), parallel, config)
    for i in full:
        parts.layers[i].recompute()
    for i in selective:
        for part in parts.cheap[i]:
            for primitive in _primitives(part):
                primitive.recompute()


def _primitives(part: Any) -> list[Any]:
    """All primitives of a cell. Cell.recompute leaves the last one out, which is the only one of a fused norm."""
    if not isinstance(part, nn.Cell):
        return [part]
    return [primitive for _, cell in part.cells_and_names() for primitive in cell._primitives.values() if primitive]
