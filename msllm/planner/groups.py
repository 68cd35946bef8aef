"""The groups of ranks that a strategy communicates in, and the link that each kind crosses."""

from __future__ import annotations

from dataclasses import dataclass

from msllm.config.sections import ParallelConfig
from msllm.hardware.cluster import Cluster
from msllm.hardware.links import Link


@dataclass(frozen=True)
class Groups:
    """All groups of one axis of the mesh; they are alike but for the ranks."""

    axis: str
    """The degree that they belong to, as data_parallel."""
    size: int
    """Ranks of a group."""
    count: int
    """Groups of the job."""
    ranks: tuple[int, ...]
    """Ranks of the first group that spans servers, or of the first one where none does."""
    spans_servers: bool
    """Whether any group is spread over several servers."""
    link: Link
    """The slowest link that a group crosses."""


def communication_groups(parallel: ParallelConfig, cluster: Cluster) -> tuple[Groups, ...]:
    """Groups of every axis with a degree above 1. Tensor parallel is innermost, as MindSpore numbers ranks."""
    tensor, data, stages = parallel.model_parallel, parallel.data_parallel, parallel.pipeline_stage
    strides = {
        "model_parallel": (tensor, 1),
        "data_parallel": (data, tensor),
        "pipeline_stage": (stages, tensor * data),
    }
    found = []
    for axis, (size, stride) in strides.items():
        if size == 1:
            continue
        first_ranks = [r for r in range(parallel.device_num) if r // stride % size == 0]
        groups = [tuple(first + i * stride for i in range(size)) for first in first_ranks]
        spanning = next((ranks for ranks in groups if cluster.spans_servers(ranks)), None)
        link = cluster.between if spanning else cluster.inside
        found.append(Groups(axis, size, len(groups), spanning or groups[0], spanning is not None, link))
    return tuple(found)
