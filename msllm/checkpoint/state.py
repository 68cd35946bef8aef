"""Full training states on disk: whole or absent, checked when read.

    checkpoints/step_00000100/
        model.safetensors       weights, by name
        optimizer.safetensors   Adam's moments, loss scale and its counters, global step
        state.json              position in the data, seed, versions, what the data was
        config.yaml             the resolved configuration
        rank_<n>.safetensors    where ranks hold slices, those of one rank, in the place of the first two files (together.py)
        manifest.json           sha256 and size of each file, name, shape and dtype of each tensor
        COMPLETE                written last: a folder without it is none

A state is written beside its place, flushed to the disk and renamed; MindSpore's own checkpoints can be cut or flipped and
still load, so every byte is compared with the manifest before a tensor is used.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from msllm.checkpoint.regions import read_region, stored_tensors
from msllm.config.load import write_resolved
from msllm.config.sections import RunConfig
from msllm.errors import InputError, Problem, RunError
from msllm.files import fsync, new_directory, remove_leftovers, sha256_of, write_atomic

FORMAT_VERSION = 1
MARKER = "COMPLETE"
PREFIX = "step_"
TENSOR_FILES = ("model", "optimizer")


@dataclass(frozen=True)
class TrainingState:
    """All that a run needs to go on as if it had not stopped."""

    model: dict[str, np.ndarray]
    """Name -> weight."""
    optimizer: dict[str, np.ndarray]
    """Name -> every other parameter of the step cell."""
    state: dict[str, Any]
    """Plain values: `step`, `samples_seen`, `seed`, `dataset`, `versions`."""


def checkpoint_name(step: int) -> str:
    """Folder of a step's state; names sort as steps do."""
    return f"{PREFIX}{step:08d}"


def step_of(path: Path) -> int:
    """Step of a state's folder."""
    return int(path.name[len(PREFIX) :])


def complete_checkpoints(root: Path) -> list[Path]:
    """Folders of complete states, oldest first."""
    found = [p for p in root.glob(f"{PREFIX}*") if p.name[len(PREFIX) :].isdigit() and (p / MARKER).exists()]
    return sorted(found, key=step_of)


def save_state(root: Path, step: int, content: TrainingState, config: RunConfig) -> Path:
    """Write a state and return its folder. A folder of the same step is replaced.

    Raises:
        RunError: the disk is full or cannot be written; nothing has appeared then.
    """
    root.mkdir(parents=True, exist_ok=True)
    target = root / checkpoint_name(step)
    if target.exists():
        remove_state(target)
    try:
        with new_directory(target) as folder:
            _write_files(folder, content, config)
        finish(target)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(target, ignore_errors=True)
        raise cannot_write(target, error) from None
    return target


def _write_files(folder: Path, content: TrainingState, config: RunConfig) -> None:
    """All files of a state but the marker."""
    tensors = {}
    for name in TENSOR_FILES:
        arrays = {key: np.asarray(value, order="C") for key, value in getattr(content, name).items()}
        safetensors.numpy.save_file(arrays, str(folder / f"{name}.safetensors"))
        tensors[name] = {key: [str(value.dtype), list(value.shape)] for key, value in arrays.items()}
    write_rest(folder, content.state, config, {}, {"tensors": tensors})


def write_rest(
    folder: Path, state: dict[str, Any], config: RunConfig, files: dict[str, Any], index: dict[str, Any]
) -> None:
    """What a state has beside its tensors, and the manifest of all.

    Args:
        folder: of the state, with the files of its tensors.
        state: the plain values.
        config: of the run.
        files: sha256 and bytes of those files that are known already, by name; the others are read.
        index: what the manifest says of the tensors.
    """
    (folder / "state.json").write_text(json.dumps(state, indent=1, sort_keys=True) + "\n")
    write_resolved(config, folder / "config.yaml")
    for file in sorted(folder.iterdir()):
        if file.name not in files:
            files[file.name] = {"sha256": sha256_of(file), "bytes": file.stat().st_size}
    manifest = {"format": "msllm-checkpoint", "version": FORMAT_VERSION, "files": files, **index}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")


def finish(folder: Path) -> None:
    """Write the marker of a state that is on the disk."""
    write_atomic(folder / MARKER, sha256_of(folder / "manifest.json") + "\n")


def cannot_write(target: Path, error: Exception) -> RunError:
    """That a state cannot be written, with the space there is."""
    free = shutil.disk_usage(target.parent).free / 2**20
    return RunError(
        f"{target}: cannot be written: {getattr(error, 'strerror', None) or error} ({free:.0f} MiB free without it); the "
        f"checkpoints before it are as they were: make room, then go on with --resume auto"
    )


def damage_of(path: Path) -> list[str]:
    """What is wrong with a state's files; empty where all is well."""
    if not (path / MARKER).exists():
        return [f"no {MARKER} file: the state was not finished"]
    try:
        text = (path / "manifest.json").read_bytes()
        manifest = json.loads(text)
        files: Mapping[str, Any] = manifest["files"]
    except (OSError, ValueError, KeyError, TypeError):
        return ["manifest.json cannot be read"]
    if manifest.get("version") != FORMAT_VERSION:
        return [f"format version {manifest.get('version')}, this msllm reads {FORMAT_VERSION}"]
    if (path / MARKER).read_bytes() != f"{hashlib.sha256(text).hexdigest()}\n".encode():
        return ["manifest.json is not the one that was written"]
    found = []
    for name, facts in files.items():
        file = path / name
        if not file.exists():
            found.append(f"{name} is missing")
        elif file.stat().st_size != facts["bytes"]:
            found.append(f"{name} has {file.stat().st_size} bytes instead of {facts['bytes']}")
        elif sha256_of(file) != facts["sha256"]:
            found.append(f"{name} has changed since it was written (sha256 differs)")
    return found


def check_state(path: Path) -> None:
    """Compare every byte of a state with its manifest.

    Raises:
        InputError: with each missing, cut or changed file.
    """
    if not path.is_dir():
        raise InputError(Problem("no such checkpoint folder", path))
    damage = damage_of(path)
    if damage:
        raise InputError([Problem(text, path) for text in damage])


def load_state(path: Path, checked: bool = False) -> TrainingState:
    """Read a state, after `check_state` where the caller has not `checked` it.

    Raises:
        InputError: as `check_state`.
    """
    if not checked:
        check_state(path)
    stored = stored_tensors(path)
    tensors: dict[str, dict[str, np.ndarray]] = {name: {} for name in TENSOR_FILES}
    for tensor in stored.values():
        tensors[tensor.group][tensor.name] = read_region(path, tensor, tuple(slice(0, n) for n in tensor.shape))
    return TrainingState(tensors["model"], tensors["optimizer"], saved_values(path))


def saved_values(path: Path) -> dict[str, Any]:
    """The plain values of a state: `TrainingState.state`."""
    values: dict[str, Any] = json.loads((path / "state.json").read_text())
    return values


def newest_good(root: Path) -> tuple[Path | None, list[Problem]]:
    """The newest complete and undamaged state under `root`, and what was wrong with newer ones."""
    problems: list[Problem] = []
    for path in reversed(complete_checkpoints(root)):
        damage = damage_of(path)
        if not damage:
            return path, problems
        problems += [Problem(text, path) for text in damage]
    return None, problems


def prune(root: Path, keep_last: int, keep_every: int | None) -> list[Path]:
    """Remove complete states beyond the newest `keep_last`, except multiples of `keep_every`; return the removed."""
    removed = []
    for path in complete_checkpoints(root)[:-keep_last]:
        if keep_every and step_of(path) % keep_every == 0:
            continue
        remove_state(path)
        removed.append(path)
    return removed


def set_aside_after(root: Path, step: int) -> None:
    """Make room for what a run resumed at `step` will write.

    Unfinished states and left-over temporary folders are removed; complete ones of later steps, which were passed over
    because they are damaged, become `damaged_step_...`.
    """
    remove_leftovers(root)
    for path in root.glob(f"{PREFIX}*"):
        if not path.name[len(PREFIX) :].isdigit():
            continue
        if not (path / MARKER).exists():
            shutil.rmtree(path)
        elif step_of(path) > step:
            aside = path.with_name(f"damaged_{path.name}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)


def remove_state(path: Path) -> None:
    """Remove a state. The marker goes first, so that a kill in between leaves an incomplete folder and not a damaged one."""
    (path / MARKER).unlink(missing_ok=True)
    fsync(path)
    shutil.rmtree(path)
