"""What to do with an output that exists: use it, replace it, or leave it alone."""

from __future__ import annotations

import os
from pathlib import Path

from data_tools.plan import ConvertRequest, Plan
from data_tools.streams import HashedRange
from data_tools.words import counted
from data_tools.workdir import dataset_files
from msllm.data.manifest import MANIFEST_NAME, Manifest, read_manifest
from msllm.data.mindrecord import index_of
from msllm.errors import InputError, Problem


def refuse_foreign_output(output: Path) -> None:
    """Raise InputError where the output is something that no conversion has made."""
    if output.is_dir():
        if os.path.ismount(output):
            raise InputError(Problem("is a mount point, which cannot be renamed; give a folder in it", output))
        if not (output / MANIFEST_NAME).exists() and any(output.iterdir()):
            message = f"exists, is not empty and has no {MANIFEST_NAME}: not a dataset; choose another --output"
            raise InputError(Problem(message, output))
    elif output.exists():
        raise InputError(Problem("exists and is not a folder; choose another --output", output))


def finished_output(plan: Plan, request: ConvertRequest) -> Manifest | None:
    """The manifest of an output that is what `plan` would give; None where there is none, or it may be replaced.

    Raises:
        InputError: the output is a dataset of other input or options, or damaged, and `--overwrite` is off; or it holds
            files of others.
    """
    output = request.output
    if not (output / MANIFEST_NAME).exists():
        return None
    try:
        manifest = read_manifest(output)
        differences = _differences(plan, request, manifest)
    except InputError as error:
        if request.overwrite:
            return None
        raise InputError(
            [*error.problems, Problem("replace it with --overwrite, or choose another --output")]
        ) from None
    if not differences:
        return manifest
    if not request.overwrite:
        message = f"is a dataset that differs: {'; '.join(differences)}. Replace it with --overwrite, or choose another"
        raise InputError(Problem(f"{message} --output", output))
    foreign = sorted(entry.name for entry in output.iterdir() if entry.name not in dataset_files(manifest))
    if foreign:
        message = f"is not replaced, as it holds files that are not of the dataset: {', '.join(foreign[:5])}"
        raise InputError(Problem(message, output))
    return None


def _differences(plan: Plan, request: ConvertRequest, manifest: Manifest) -> list[str]:
    """How a finished dataset differs from what would be made, in words."""
    found = []
    before, after = manifest.options.model_dump(), plan.options.model_dump()
    found += [f"{key} is {before[key]}, would be {after[key]}" for key in after if before[key] != after[key]]
    if manifest.tokenizer.fingerprint != plan.tokenizer.fingerprint:
        found.append("it was made with another tokenizer")
    if manifest.skipped and request.on_error == "fail":
        found.append(
            f"it was made with --on-error skip, {counted(sum(manifest.skipped.values()), 'document')} left out"
        )
    for shard in manifest.shards:
        path = manifest.directory / shard.file
        for file, size in ((path, shard.bytes), (index_of(path), shard.index_bytes)):
            if not file.exists() or file.stat().st_size != size:
                found.append(f"{file.name} is missing or damaged (see `msllm data verify`)")
    if not found:
        found += _changed_inputs(plan, manifest)
    return found


def _changed_inputs(plan: Plan, manifest: Manifest) -> list[str]:
    """Which inputs are not those of the dataset: by name and size, and by content where they are newer than it."""
    made_ns = (manifest.directory / MANIFEST_NAME).stat().st_mtime_ns
    units = [unit for job in plan.jobs for unit in job.units]
    before = [(source.file, source.start, source.end) for source in manifest.sources]
    after = [(unit.source.name, unit.start, unit.end) for unit in units]
    if before != after:
        names = sorted({name for name, _, _ in set(before) ^ set(after)})
        what = ", ".join(names[:3]) + (" ..." if len(names) > 3 else "") if names else "their order"
        return [f"the input files changed ({what})"]
    for unit, source in zip(units, manifest.sources):
        if unit.source.mtime_ns >= made_ns:
            with HashedRange(unit.source.path, unit.start, unit.end) as raw:
                if raw.finish() != source.sha256:
                    return [f"the input files changed ({source.file})"]
    return []
