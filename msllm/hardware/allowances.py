"""Device memory that no plan of a graph counts."""

from __future__ import annotations

HCCL_BUFFER_BYTES = 200 << 20
"""Of each communication group (HCCL_BUFFSIZE's default)."""
WORKSPACE_SHARE = 0.05
FRAGMENTATION_SHARE = 0.05
"""Shares of the planned peak that are kept free for kernel workspace and fragmentation. Assumptions, not measurements."""


def allowances(peak: int, groups: int) -> dict[str, int]:
    """Bytes beside a planned peak on a device that is in so many communication groups."""
    return {
        "hccl_bytes": groups * HCCL_BUFFER_BYTES,
        "workspace_bytes": int(WORKSPACE_SHARE * peak),
        "fragmentation_bytes": int(FRAGMENTATION_SHARE * peak),
    }
