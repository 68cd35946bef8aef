"""What the chips can do, as far as a configuration is checked against it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Chip:
    """Facts about one device as MindSpore counts them: one rank runs on one."""

    name: str
    """How users and this project call it."""
    device_target: str
    """MindSpore's name of the backend that runs it."""
    servers: str
    """Where it is found."""
    bfloat16: bool
    """Whether a network can be trained in bfloat16."""
    source: str
    """Where the facts are published or how they were found."""


_BFLOAT16_PAGE = (
    "CANN 8.5 API reference, ToBfloat16, table of supported products (hiascend.com, atlasascendc_api_07_0021)"
)

CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("910A", "Ascend", "Atlas 800 (Atlas training series)", False, _BFLOAT16_PAGE),
        Chip("910B", "Ascend", "Atlas 800T A2, Atlas 900 A2 PoD (Atlas A2 training series)", True, _BFLOAT16_PAGE),
        Chip("910C", "Ascend", "Atlas 900 A3 SuperPoD (Atlas A3 training series), a rank is one of its two dies", True,
             _BFLOAT16_PAGE),
        Chip("CPU", "CPU", "any machine", False,
             "run on mindspore 2.9.0: MatMul and Softmax have no bfloat16 kernel for CPU"),
    )
}  # fmt: skip


def chip(name: str) -> Chip:
    """The facts about a chip; KeyError for a name that is not in CHIPS."""
    return CHIPS[name]
