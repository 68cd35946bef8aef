"""Taking up a run: which checkpoint, and whether it belongs to this configuration and this data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, TypeAdapter

from msllm.checkpoint.regions import read_region, stored_tensors
from msllm.checkpoint.state import check_state, complete_checkpoints, newest_good, saved_values, step_of
from msllm.config.sections import RunConfig
from msllm.data.manifest import Manifest
from msllm.errors import InputError, Problem
from msllm.training.run_directory import RunDirectory
from msllm.training.tensors import StepTensors

SAME = ("data.seq_length", "data.shuffle", "training.seed")
"""Fields that decide which samples are still to come: with another value the run would not go on, but begin anew."""


def dataset_fingerprint(manifest: Manifest) -> dict[str, Any]:
    """What makes the rows of a dataset what they are."""
    return {
        "rows": manifest.rows,
        "shards": [shard.sha256 for shard in manifest.shards],
        "tokenizer": manifest.tokenizer.fingerprint,
        "eod_id": manifest.eod_id,
    }


def choose_checkpoint(resume: str, directory: RunDirectory) -> tuple[Path | None, list[Problem]]:
    """The checkpoint that `--resume` names, every byte of it checked, and what is wrong with newer ones passed over.

    `no` wants an empty run folder, `auto` takes the newest undamaged state or begins at step 0, anything else is a path.

    Each rank checks it for itself, and not the main rank for all: servers read through mounts and caches of their own, and
    ranks that differ in one flipped bit of the weights would go on side by side without a word.

    Raises:
        InputError: the folder holds a run and `resume` is `no`, or what would be taken is damaged.
    """
    if resume == "no":
        if directory.has_run():
            raise InputError(
                Problem(
                    "holds a run already; add --resume auto to go on with it, or choose another --output",
                    directory.path,
                )
            )
        return None, []
    if resume != "auto":
        chosen = Path(resume)
        if (chosen / "checkpoints").is_dir():
            hint = (
                "--resume auto goes on from its newest checkpoint"
                if chosen == directory.path
                else "name one of its checkpoints"
            )
            raise InputError(Problem(f"is a run's folder, not a checkpoint's; {hint}", chosen))
        check_state(chosen)
        step = saved_values(chosen)["step"]
        newer = [p.name for p in complete_checkpoints(directory.checkpoints) if step_of(p) > step]
        if newer:
            raise InputError(
                Problem(
                    f"holds checkpoints after step {step} of {chosen} ({', '.join(newer)}), which a run from there would "
                    f"replace; move them away or choose another --output",
                    directory.path,
                )
            )
        return chosen, []
    path, damaged = newest_good(directory.checkpoints)
    if path is None and damaged:
        raise InputError([*damaged, Problem("no undamaged checkpoint is left to resume from", directory.checkpoints)])
    return path, damaged


def restore(
    checkpoint: Path, tensors: StepTensors, config: RunConfig, manifest: Manifest, checked: bool = False
) -> dict[str, Any]:
    """Put a checkpoint's state into the step and return its plain values; `checked` as for `load_state`.

    Each rank reads what it holds, whatever the strategy that the checkpoint was written under.

    Raises:
        InputError: damaged files, another model, other data, or another order of the data.
    """
    if not checked:
        check_state(checkpoint)
    state, stored = saved_values(checkpoint), stored_tensors(checkpoint)
    problems = [Problem(text, checkpoint / "config.yaml") for text in _config_problems(checkpoint, config)]
    found = tensors.problems({name: tensor.shape for name, tensor in stored.items()})
    if len(found) > 8:
        found = [*found[:8], f"... and {len(found) - 8} more"]
    problems += [Problem(f"checkpoint of another model or precision: {text}", checkpoint) for text in found]
    if state["dataset"] != dataset_fingerprint(manifest):
        problems.append(
            Problem(
                f"the run was trained on other data than {manifest.directory} (the shards' sha256 differ)", checkpoint
            )
        )
    if problems:
        raise InputError(problems)
    if state["step"] > config.training.train_steps:
        raise InputError(
            Problem(
                f"is at step {state['step']}, beyond training.train_steps ({config.training.train_steps})",
                checkpoint,
            )
        )
    tensors.compile(
        config.training.global_batch_size // config.parallel_config.data_parallel, config.data.seq_length + 1
    )
    tensors.set({part.name: read_region(checkpoint, stored[part.name], part.place) for part in tensors.held()})
    return state


def _config_problems(checkpoint: Path, config: RunConfig) -> list[str]:
    was, now = _saved_config(checkpoint, config), config.to_dict()
    fields = [f"model.{key}" for key in now["model"]] + list(SAME)
    found = []
    for field in fields:
        section, key = field.split(".")
        before, after = was[section].get(key), now[section][key]
        if before != after:
            found.append(f"{field} was {before!r} when this was saved and is {after!r} now; resume with the same value")
    return found


def changed_fields(checkpoint: Path, config: RunConfig) -> list[str]:
    """Other fields that differ from those of the checkpoint, as lines to show; they are the user's right to change."""
    was, now = _saved_config(checkpoint, config), config.to_dict()
    return [
        f"{section}.{key}: {was[section].get(key)!r} -> {value!r}"
        for section, values in now.items()
        for key, value in values.items()
        if was[section].get(key) != value
    ]


def _saved_config(checkpoint: Path, config: RunConfig) -> dict[str, dict[str, Any]]:
    """The checkpoint's configuration; fields that were added since it was saved have their defaults."""
    saved = yaml.safe_load((checkpoint / "config.yaml").read_text())
    return {section: _defaults(type(getattr(config, section))) | saved.get(section, {}) for section in config.to_dict()}


def _defaults(section: type[BaseModel]) -> dict[str, Any]:
    """Field -> default, as JSON has it; fields without a default are left out."""
    found = {}
    for name, field in section.model_fields.items():
        if not field.is_required():
            value = field.get_default(call_default_factory=True)
            found[name] = TypeAdapter(Any).dump_python(value, mode="json")
    return found


def way_back(checkpoints: Mapping[int, Path], updated: int, unseen: bool) -> str:
    """Where a run can go on after steps without an update, for the end of its message.

    A checkpoint is known to be good where a step that began with its weights was finite. One of step `updated` or later holds
    the weights that failed.

    Args:
        checkpoints: by step.
        updated: last step that is known to have changed the weights.
        unseen: whether later ones may have, between two looks from the host.
    """
    advice = "lower optimizer.learning_rate or lengthen lr_schedule.warmup_steps"
    if not checkpoints:
        return f"there is no checkpoint yet; {advice}"
    before = [step for step in checkpoints if step < updated]
    good = f"last good checkpoint: {checkpoints[max(before)]}" if before else "there is none before it"
    newest = max(checkpoints)
    if newest < updated:
        return good
    return f"{checkpoints[newest]} {'may hold' if unseen else 'holds'} the weights that failed; {good}; {advice}"
