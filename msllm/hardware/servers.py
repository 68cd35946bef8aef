"""The machines that the chips are sold in, as far as a strategy is laid out on them."""

from __future__ import annotations

from dataclasses import dataclass

from msllm.hardware.links import HCCS_A2, HCCS_A3, PCIE_4, ROCE_910A, ROCE_A2, ROCE_A3, Link


@dataclass(frozen=True)
class Server:
    """One kind of machine. A device is what MindSpore counts: one rank runs on one."""

    chip: str
    """Name in CHIPS."""
    devices: int
    """Devices of one machine."""
    hbm_gb: tuple[int, ...]
    """GB of memory of a device; the usual variant first."""
    inside: Link
    """Between devices of one machine, all of them together."""
    between: Link
    """Between machines."""
    source: str
    """Where sizes and wiring are published."""


SERVERS: dict[str, Server] = {
    server.chip: server
    for server in (
        Server("910A", 8, (32,), PCIE_4, ROCE_910A,
               "Atlas 800 training server (9000): HCCS joins 4 cards, PCIe the two halves"),
        Server("910B", 8, (64, 32), HCCS_A2, ROCE_A2,
               "Atlas 800T A2 (64 GB); Atlas 800I A2 and Atlas 300T A2 with 910B4 (32 GB)"),
        Server("910C", 16, (64,), HCCS_A3, ROCE_A3,
               "Atlas 900 A3 SuperPoD: 8 packages of 2 dies with 64 GB each (CloudMatrix384, arXiv:2506.12708)"),
    )
}  # fmt: skip
"""Chip -> the server that a cluster of it consists of."""
USUAL_CHIP = "910B"
"""The chip that is meant where nothing names one."""
