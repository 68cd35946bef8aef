"""The groups of ranks that a strategy communicates in, and the link that each kind crosses."""

from __future__ import annotations

from dataclasses import dataclass

from msllm.config.framework_checks import rank_groups
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
    """Groups of every axis with a degree above 1, innermost first."""
    found = []
    for axis, groups in rank_groups(parallel).items():
        spanning = next((ranks for ranks in groups if cluster.spans_servers(ranks)), None)
        link = cluster.between if spanning else cluster.inside
        found.append(Groups(axis, len(groups[0]), len(groups), spanning or groups[0], spanning is not None, link))
    return tuple(found)
