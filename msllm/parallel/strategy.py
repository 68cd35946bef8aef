"""Layouts that models put together in their `sharding.py`: how each kind of cell is cut over a mesh.

A layout is a tuple with the number of parts of each axis. Activations are rows (T, H) with T = B * S: `mesh.rows` parts in the
residual stream, `mesh.data` parts inside the tensor-parallel blocks, whose columns or heads `mesh.tensor` divides.
A primitive that gets no strategy is silently computed whole on every device; tests count collectives and look at every
parameter's layout for that reason.
"""

from __future__ import annotations

from typing import Any

from msllm.parallel.mesh import Mesh


def column(linear: Any, mesh: Mesh) -> None:
    """Output features over the tensor axis; with sequence parallel the input rows are gathered first."""
    linear.set_strategy((mesh.data, 1), (mesh.tensor, 1))


def row(linear: Any, mesh: Mesh) -> None:
    """Input features over the tensor axis; the partial sums are all-reduced, or reduce-scattered to the rows."""
    linear.set_strategy((mesh.data, mesh.tensor), (1, mesh.tensor), (mesh.rows, 1))


def head(linear: Any, mesh: Mesh) -> None:
    """A projection to the vocabulary: logits stay cut where the vocabulary is."""
    linear.set_strategy((mesh.data, 1), (mesh.vocab, 1))


def norm(cell: Any, mesh: Mesh) -> None:
    """Every row is normalised where it lies; the weights are whole on every device."""
    cell.set_strategy(mesh.rows)


def embedding(cell: Any, mesh: Mesh) -> None:
    """Rows of the table over the tensor axis; ids (B, S)."""
    cell.set_strategy((mesh.vocab, 1), (mesh.data, 1))


def attention(cell: Any, mesh: Mesh) -> None:
    """Heads over the tensor axis, samples over the data axis."""
    for projection in (cell.q_proj, cell.k_proj, cell.v_proj):
        column(projection, mesh)
    row(cell.o_proj, mesh)
    cell.set_strategy(mesh.data, mesh.tensor)


def residual(add: Any, mesh: Mesh) -> None:
    """The sum of the stream and a block's output, both cut by rows."""
    add.shard(((mesh.rows, 1), (mesh.rows, 1)))
