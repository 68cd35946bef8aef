"""A conversion in parts that know nothing of one another (`--num-parts N --part K`), and how they become one dataset.

A part is a folder `OUTPUT.part-K-of-N` with the shards K-1, K-1+N, K-1+2N, ... of the whole and `part.json`, written last.
Merging needs the parts alone: neither the input nor the machines on which they were made.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from data_tools.assemble import Recipe, assemble, too_small
from data_tools.reuse import refuse_foreign_output
from data_tools.shard import ShardResult
from data_tools.workdir import WorkDirectory
from msllm.config.sections import Section
from msllm.data.manifest import MANIFEST_NAME, Count, Manifest, Positive, manifest_text
from msllm.data.mindrecord import index_of
from msllm.errors import InputError, Problem
from msllm.files import fsync, write_atomic

PART_NAME = "part.json"


class InputFile(Section):
    """An input file as every part has found it."""

    name: str
    size: Count
    mtime_ns: int


class Part(Section):
    """`part.json`: what a part is of, and what it holds."""

    format: Literal["msllm-part"] = "msllm-part"
    part: Positive
    num_parts: Positive
    recipe: Recipe
    inputs: tuple[InputFile, ...]
    """All of the whole conversion."""
    results: tuple[ShardResult, ...]

    def same_conversion(self) -> dict[str, Any]:
        """What all parts of one conversion have in common; a copy of the input on another machine has other times."""
        inputs = [(file.name, file.size) for file in self.inputs]
        return {"num_parts": self.num_parts, "recipe": self.recipe.model_dump(), "inputs": inputs}


@dataclass(frozen=True)
class MergeSummary:
    """What a merge did."""

    manifest: Manifest
    output: Path
    parts: int
    reused: bool
    """The output was there already, the same."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        manifest = self.manifest
        names = ("seq_length", "rows", "tokens", "documents", "padding_tokens", "dropped_tokens", "skipped")
        return {
            "output": str(self.output),
            "parts": self.parts,
            "reused": self.reused,
            "shards": len(manifest.shards),
            **{name: getattr(manifest, name) for name in names},
            "seconds": round(self.seconds, 3),
        }


def part_folder(output: str | Path, part: int, num_parts: int) -> Path:
    """Where a part of a conversion goes."""
    return Path(f"{os.path.realpath(output)}.part-{part}-of-{num_parts}")


def read_part(folder: Path) -> Part | None:
    """What a folder says of itself; None where it has no part.json.

    Raises:
        InputError: a part.json that is none.
    """
    path = folder / PART_NAME
    try:
        return Part.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        raise InputError(
            Problem(f"is damaged: {str(error).splitlines()[0]}; convert this part again with --overwrite", path)
        ) from None


def finished_part(folder: Path, wanted: Part, overwrite: bool) -> Part | None:
    """The part in a folder, where it is what would be made; None where there is none, or it may be replaced.

    Raises:
        InputError: it is another, or lacks files, and `overwrite` is off.
    """
    try:
        found = read_part(folder)
    except InputError:
        if overwrite:
            return None
        raise
    if found is None:
        return None
    same = (found.recipe, found.inputs, found.part) == (wanted.recipe, wanted.inputs, wanted.part)
    if same and not missing_from(folder, found):
        return found
    if overwrite:
        return None
    message = "is damaged" if same else "is a part of another conversion, or its input has changed"
    raise InputError(Problem(f"{message}; replace it with --overwrite", folder))


def publish_part(work: WorkDirectory, part: Part, tokenizer: Path) -> None:
    """Complete a part and rename it to its folder; `part.json` comes last."""
    write_atomic(work.folders.output / part.recipe.tokenizer.file, tokenizer.read_bytes())
    write_atomic(work.folders.output / PART_NAME, part.model_dump_json(indent=1))
    for entry in work.folders.output.iterdir():
        if entry.name not in part_files(part):
            entry.unlink()
    work.rename()


def part_files(part: Part) -> set[str]:
    """Names of all files that belong in a part's folder."""
    names = {PART_NAME, part.recipe.tokenizer.file}
    for result in part.results:
        if result.info:
            names |= {result.info.file, index_of(result.info.file).name}
    return names


def missing_from(folder: Path, part: Part) -> list[str]:
    """Files of a part that are missing or have another length than they had."""
    found = []
    for result in part.results:
        if result.info is None:
            continue
        path = folder / result.info.file
        for file, size in ((path, result.info.bytes), (index_of(path), result.info.index_bytes)):
            if not file.exists() or file.stat().st_size != size:
                found.append(file.name)
    if not (folder / part.recipe.tokenizer.file).exists():
        found.append(part.recipe.tokenizer.file)
    return found


def merge(output: Path, folders: Sequence[Path] = (), overwrite: bool = False) -> MergeSummary:
    """Make one dataset of the parts of a conversion: the bytes that one process gives. The parts are left as they are.

    On one file system the files are linked, not copied. After an interruption, run it again.

    Args:
        output: the dataset, as it was given to every part.
        folders: the parts; none: those that lie beside the output under their own names.
        overwrite: replace a dataset that differs.

    Raises:
        InputError: parts that are missing, doubled, damaged or not of one conversion; an output that is something else.
    """
    start = time.monotonic()
    refuse_foreign_output(output)
    parts = _checked_parts(output, folders)
    recipe = parts[0][1].recipe
    where = {result.number: folder for folder, part in parts for result in part.results}
    results = sorted((result for _, part in parts for result in part.results), key=lambda result: result.number)
    if said := too_small(recipe, results):
        raise InputError(said)
    manifest = assemble(recipe, results)
    if (output / MANIFEST_NAME).exists():
        if (output / MANIFEST_NAME).read_text() == manifest_text(manifest):
            return MergeSummary(manifest, output, len(parts), True, time.monotonic() - start)
        if not overwrite:
            message = "is a dataset that differs. Replace it with --overwrite, or choose another --output"
            raise InputError(Problem(message, output))
    with WorkDirectory(output) as work:
        identity = {**parts[0][1].same_conversion(), "options": {"merge": True}, "versions": {}, "tokenizer": {}}
        work.start({**identity, "inputs": {file.name: file.size for file in parts[0][1].inputs}}, restart=False)
        for result in results:
            if result.info is not None:
                for name in (index_of(result.info.file).name, result.info.file):
                    _take(where[result.number] / name, work.folders.output / name)
        fsync(work.folders.output)
        work.publish(manifest, parts[0][0] / recipe.tokenizer.file)
    return MergeSummary(manifest, output, len(parts), False, time.monotonic() - start)


def _checked_parts(output: Path, folders: Sequence[Path]) -> list[tuple[Path, Part]]:
    """The parts of one whole conversion, in order."""
    real = Path(os.path.realpath(output))
    if not folders:
        folders = sorted(real.parent.glob(f"{_escaped(real.name)}.part-*-of-*"))
        folders = [folder for folder in folders if folder.is_dir() and not folder.name.endswith(".partial")]
    if not folders:
        raise InputError(
            Problem("has no parts beside it: `msllm data convert --num-parts N --part K` makes them", output)
        )
    problems: list[Problem] = []
    found: list[tuple[Path, Part]] = []
    for folder in folders:
        try:
            part = read_part(folder)
        except InputError as error:
            problems.extend(error.problems)
            continue
        if part is None:
            problems.append(Problem(f"is no part of a conversion: it has no {PART_NAME}", folder))
        else:
            found.append((folder, part))
            if lost := missing_from(folder, part):
                problems.append(
                    Problem(f"lacks files, or they are cut: {', '.join(lost[:5])}; convert it again", folder)
                )
    if found:
        problems += _not_one_conversion(found)
    if problems:
        raise InputError(problems)
    return sorted(found, key=lambda pair: pair[1].part)


def _not_one_conversion(found: Sequence[tuple[Path, Part]]) -> list[Problem]:
    """Parts that do not belong together, or do not make a whole."""
    first_folder, first = found[0]
    problems = []
    for folder, part in found[1:]:
        mine, theirs = first.same_conversion(), part.same_conversion()
        if different := [key for key in mine if mine[key] != theirs[key]]:
            what = ", ".join(different)
            problems.append(Problem(f"is of another conversion than {first_folder}: {what} differ", folder))
    counts = Counter(part.part for _, part in found)
    missing = sorted(set(range(1, first.num_parts + 1)) - set(counts))
    if missing:
        names = ", ".join(map(str, missing[:20])) + (" ..." if len(missing) > 20 else "")
        problems.append(Problem(f"parts missing of {first.num_parts}: {names}; run them with --part"))
    for number in sorted(number for number, count in counts.items() if count > 1):
        problems.append(Problem(f"part {number} is given {counts[number]} times"))
    return problems


def _take(source: Path, target: Path) -> None:
    """Put a file of a part in the working folder, linked where that goes."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
            raise
        shutil.copyfile(source, target)
        fsync(target)


def _escaped(name: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in name)
