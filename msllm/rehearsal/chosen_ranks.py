"""Which ranks stand for all: the others run the same program on other data."""

from __future__ import annotations

from msllm.errors import InputError
from msllm.parallel.mesh import Mesh


def choose_ranks(text: str, mesh: Mesh) -> list[int]:
    """Ranks of `auto`, `all` or a list as `0,7`.

    `auto`: first and last rank of each stage. Stages differ in their layers; within one, ranks differ in their place in the
    groups alone, which a first and a last one show.

    Raises:
        InputError: for anything else, and for ranks that the strategy does not have.
    """
    per_stage = mesh.size // mesh.stages
    if text == "auto":
        edges = ((stage * per_stage, (stage + 1) * per_stage - 1) for stage in range(mesh.stages))
        return sorted({rank for edge in edges for rank in edge})
    if text == "all":
        return list(range(mesh.size))
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise InputError(f"--ranks ({text}) must be auto, all, or ranks with commas between, as 0,7")
    ranks = sorted({int(part) for part in parts})
    if ranks[-1] >= mesh.size:
        raise InputError(
            f"--ranks ({text}): rank {ranks[-1]} does not exist; the strategy has ranks 0 to {mesh.size - 1}"
        )
    return ranks
