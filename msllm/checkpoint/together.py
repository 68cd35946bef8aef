"""States that all ranks of a run write together, each the slices that it is the first to hold.

The state's folder is shared by all ranks. It is made under a temporary name; each rank writes its tensors into it and says
what they are; when all have, the main rank writes the manifest of the whole, renames the folder and writes the marker.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from msllm.checkpoint.regions import Part, StoredTensor, uncovered
from msllm.checkpoint.state import cannot_write, checkpoint_name, finish, remove_state, write_rest
from msllm.config.sections import RunConfig
from msllm.errors import RunError
from msllm.files import fsync, fsync_tree, sha256_of
from msllm.parallel.held import Held
from msllm.parallel.world import World


@dataclass(frozen=True)
class Share:
    """What a rank has of a state."""

    values: Mapping[str, Mapping[str, np.ndarray]]
    """model, optimizer -> name -> the array that the rank holds."""
    held: Sequence[Held]
    """Where those lie in the full tensors."""
    full_shapes: Mapping[str, tuple[int, ...]]
    """Of all tensors of the state, also of those that this rank holds nothing of."""
    state: dict[str, Any]
    """Plain values; those of the main rank are written."""


def save_together(
    root: Path,
    step: int,
    share: Share,
    config: RunConfig,
    world: World,
    any_rank: Callable[[bool], bool],
) -> Path:
    """Write a state and return its folder, on every rank once it is complete. A folder of the same step is replaced.

    Args:
        root: folder of checkpoints, the same for all ranks.
        step: of the state.
        share: of this rank.
        config: of the run.
        world: this rank.
        any_rank: whether what it is given is true on any rank; it waits for all of them.

    Raises:
        RunError: a rank cannot write; on all ranks, and nothing has appeared then.
    """
    target = root / checkpoint_name(step)
    folder = root / f".{target.name}.tmp-ranks"

    def together(work: Callable[[], None]) -> None:
        """Do this rank's share, and go on where all ranks could do theirs."""
        error: Exception | None = None
        try:
            work()
        except (OSError, SafetensorError, RunError) as caught:
            error = caught
        if any_rank(error is not None) or error is not None:
            if world.is_main:
                shutil.rmtree(folder, ignore_errors=True)
                shutil.rmtree(target, ignore_errors=True)
            if isinstance(error, RunError):
                raise error
            if error is None:
                raise RunError(
                    f"{target}: was not written, as another rank could not write its part; see that rank's log"
                )
            raise cannot_write(target, error) from None

    def begin() -> None:
        if world.is_main:
            root.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            if target.exists():
                remove_state(target)

    def end() -> None:
        if world.is_main:
            _merge(folder, share, config, world.size)
            folder.rename(target)
            fsync(root)
            finish(target)

    together(begin)
    together(lambda: _write_part(folder, world.rank, share))
    together(end)
    return target


def _write_part(folder: Path, rank: int, share: Share) -> None:
    """A rank's tensors, and beside them what the manifest will say of them."""
    places = {part.name: part for part in share.held if part.writes}
    arrays = {
        name: np.asarray(array, order="C")
        for tensors in share.values.values()
        for name, array in tensors.items()
        if name in places
    }
    note: dict[str, Any] = {"files": {}, "tensors": []}
    file = folder / f"rank_{rank:05d}.safetensors"
    if arrays:
        safetensors.numpy.save_file(arrays, str(file))
        fsync(file)
        note["files"][file.name] = {"sha256": sha256_of(file), "bytes": file.stat().st_size}
    for group, tensors in share.values.items():
        for name in tensors:
            if name in places:
                begin = [axis.start for axis in places[name].place]
                facts = [group, name, str(arrays[name].dtype), places[name].shape, begin, arrays[name].shape]
                note["tensors"].append(facts)
    (folder / _note(rank)).write_text(json.dumps(note))


def _note(rank: int) -> str:
    return f"rank_{rank:05d}.json"


def _merge(folder: Path, share: Share, config: RunConfig, ranks: int) -> None:
    """The manifest of what all ranks have written."""
    absent = [rank for rank in range(ranks) if not (folder / _note(rank)).exists()]
    if absent:
        raise RunError(
            f"{folder}: rank {absent[0]}{' and others' if len(absent) > 1 else ''} wrote into another folder of this name; "
            f"all servers must see the same disk under --output"
        )
    files: dict[str, Any] = {}
    tensors: dict[str, dict[str, Any]] = {"model": {}, "optimizer": {}}
    parts: dict[str, list[Any]] = {}
    for rank in range(ranks):
        note = json.loads((folder / _note(rank)).read_text())
        files |= note["files"]
        for group, name, dtype, shape, begin, lengths in note["tensors"]:
            tensors[group][name] = [dtype, shape]
            parts.setdefault(name, []).append([f"rank_{rank:05d}.safetensors", begin, lengths])
        (folder / _note(rank)).unlink()
    if parts.keys() != share.full_shapes.keys():
        lost = sorted(share.full_shapes.keys() ^ parts.keys())
        raise RunError(f"{folder}: the ranks do not hold together what the model has: {', '.join(lost[:8])}")
    for group, of_group in tensors.items():
        for name, (dtype, shape) in of_group.items():
            in_files = tuple(Part(*row) for row in parts[name])
            lacking = uncovered(StoredTensor(name, group, dtype, tuple(shape), in_files))
            if lacking:
                raise RunError(f"{folder}: {name} {tuple(shape)} lacks {lacking} elements that no rank has written")
    write_rest(folder, share.state, config, files, {"tensors": tensors, "parts": parts})
    fsync_tree(folder)
