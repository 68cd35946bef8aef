"""How devices are wired: published peak rates, by which links are compared. No measured time is promised."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """A kind of connection between devices."""

    name: str
    """How users call it."""
    gb_per_second: float
    """Peak GB/s (10^9 bytes) in one direction: of a device's port, or of each of its wires where `full_mesh` is true."""
    full_mesh: bool
    """Whether a device has a wire of its own to every other one, so that a small group uses few of its wires."""
    source: str
    """Where the figure is published."""

    def bandwidth(self, group: int) -> float:
        """GB/s that each of `group` devices can send to the others together."""
        return self.gb_per_second * (group - 1) if self.full_mesh else self.gb_per_second


HCCS_A2 = Link(
    "HCCS", 28.0, True,
    "392 GB/s HCCS full mesh of a card (Atlas 800I A2 product page), both directions of 7 wires to the server's other cards",
)  # fmt: skip
HCCS_A3 = Link(
    "HCCS", 196.0, False,
    "392 GB/s in one direction of a package of two dies, switched (CloudMatrix384, arXiv:2506.12708)",
)  # fmt: skip
ROCE_A2 = Link(
    "RoCE", 25.0, False,
    "200 Gbit/s a card (Pangu Ultra, arXiv:2504.07866; Atlas 800T A2 has 8 ports of 200GE)",
)  # fmt: skip
ROCE_A3 = Link(
    "RoCE", 25.0, False,
    "400 Gbit/s of a package of two dies (CloudMatrix384, arXiv:2506.12708)",
)  # fmt: skip
PCIE_4 = Link("PCIe", 32.0, False, "PCIe 4.0 x16: 16 GT/s on 16 lanes, before the overhead of packets")
ROCE_910A = Link("RoCE", 12.5, False, "100 Gbit/s a card: 8 ports of 100GE (Atlas 800 training server 9000)")
