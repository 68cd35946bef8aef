"""Folders of Hugging Face: config.json and model.safetensors, in one file or in shards with an index.

Names and shapes come from a `WeightMap` (`models/<name>/weights.py`); nothing here knows a model or MindSpore.

    folder = open_folder(path)                        # reads config.json and the headers of the weights
    notes = check_tensors(folder, weight_map)         # missing, unexpected, wrong shapes: all at once
    weights = dict(read_weights(folder, weight_map))  # our name -> float32 array
    export_folder(path, config_json, weight_map, weights, dtype="bfloat16")
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msllm.checkpoint.safetensors_file import DTYPES, StoredTensor, read_header, write_file
from msllm.config.hugging_face import WeightMap
from msllm.errors import InputError, Problem, RunError
from msllm.files import new_directory

CONFIG = "config.json"
SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_SHARD_BYTES = 5_000_000_000


@dataclass(frozen=True)
class HfFolder:
    """What a folder holds: the content of config.json and where each tensor lies, by the name it is stored under."""

    path: Path
    config: dict[str, Any]
    tensors: dict[str, StoredTensor]


def open_folder(path: str | Path) -> HfFolder:
    """Read config.json and the headers; no weights yet. InputError lists every missing, cut or damaged file."""
    path = Path(path)
    if not path.is_dir():
        what = "is a file; give the folder that it lies in" if path.exists() else "does not exist"
        raise InputError(Problem(what, path))
    problems: list[Problem] = []
    config = _read_json(path / CONFIG, problems)
    tensors: dict[str, StoredTensor] = {}
    for file, expected in _weight_files(path, problems).items():
        try:
            found = read_header(path / file)
        except InputError as error:
            problems += error.problems
            continue
        absent = [name for name in expected if name not in found]
        problems += [Problem(f"lacks {name}, which {INDEX} places here", path / file) for name in folded(absent)]
        twice = [name for name in found if name in tensors]
        problems += [Problem(f"holds {name}, which another shard holds as well", path / file) for name in folded(twice)]
        tensors |= found
    if problems:
        raise InputError(problems)
    return HfFolder(path, config, tensors)


def _read_json(path: Path, problems: list[Problem]) -> dict[str, Any]:
    """The object in a JSON file; {} and an entry in `problems` where there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        problems.append(Problem("does not exist", path))
    except json.JSONDecodeError as error:
        problems.append(Problem(f"is not JSON: {error.msg}", path, error.lineno))
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(f"cannot be read: {error}", path))
    else:
        if isinstance(content, dict):
            return content
        problems.append(Problem("must hold a JSON object", path))
    return {}


def _weight_files(path: Path, problems: list[Problem]) -> dict[str, list[str]]:
    """Name of each file of weights that exists -> the tensors that the index expects in it ([] without an index)."""
    if (path / SINGLE).exists():
        return {SINGLE: []}
    if not (path / INDEX).exists():
        problems.append(Problem(_why_no_weights(path), path))
        return {}
    before = len(problems)
    places = _read_json(path / INDEX, problems).get("weight_map")
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        if len(problems) == before:
            problems.append(Problem("has no weight_map from tensors to files", path / INDEX))
        return {}
    files: dict[str, list[str]] = defaultdict(list)
    for name, file in places.items():
        files[file].append(name)
    for file in sorted(files):
        if Path(file).name != file:
            problems.append(Problem(f"names {file!r}, which is outside this folder", path / INDEX))
        elif not (path / file).exists():
            problems.append(
                Problem(f"does not exist, but {INDEX} places {len(files[file])} tensors there", path / file)
            )
        else:
            continue
        del files[file]
    return dict(sorted(files.items()))


def _why_no_weights(path: Path) -> str:
    if shards := sorted(file.name for file in path.glob("*.safetensors")):
        return f"holds {shards[0]} but neither {SINGLE} nor {INDEX}; the index tells which shards there should be"
    if any(path.glob("pytorch_model*.bin")):
        return (
            "holds its weights only as pytorch_model.bin; write them as safetensors with transformers: "
            "AutoModelForCausalLM.from_pretrained(folder).save_pretrained(new_folder)"
        )
    return f"holds neither {SINGLE} nor {INDEX}"


def check_tensors(folder: HfFolder, weight_map: WeightMap) -> list[str]:
    """Compare names and shapes with what the model needs. Returns what is left out, as lines for the user.

    InputError lists every tensor that is missing, unexpected or of another shape, layers folded into one line, and a
    copy of a tied weight whose values are not those of the weight.
    """
    stored = _by_hf_name(folder, weight_map)
    expected = {tensor.hf_name: tensor.hf_shape for tensor in weight_map.tensors}
    extra = [name for name in stored if name not in expected]
    buffers = [name for name in extra if weight_map.is_buffer(name)]
    copies = [name for name in extra if name in weight_map.copies]
    unexpected = [name for name in extra if name not in buffers and name not in copies]
    wrong = [
        f"{name} has shape {stored[name].shape}, {CONFIG} asks for {shape}"
        for name, shape in expected.items()
        if name in stored and stored[name].shape != shape
    ]
    problems = [f"{name} is missing" for name in folded(name for name in expected if name not in stored)]
    problems += [f"{name} is unexpected: the model has no such weight" for name in folded(unexpected)]
    problems += folded(wrong)
    for name in copies:
        original = weight_map.copies[name]
        if original in stored and not _same(stored[name], stored[original]):
            problems.append(f"{name} differs from {original}, although the two are tied; untie them in {CONFIG}")
    if problems:
        raise InputError([Problem(message, folder.path) for message in problems])
    notes = [f"{name}: not a weight, computed from the configuration" for name in folded(buffers)]
    return notes + [f"{name}: the same as {weight_map.copies[name]}, read once" for name in copies]


def _by_hf_name(folder: HfFolder, weight_map: WeightMap) -> dict[str, StoredTensor]:
    """Stored tensors under their full names, also where the file is one of the bare network without the prefix."""
    names = {tensor.hf_name for tensor in weight_map.tensors}
    prefix = weight_map.base_prefix
    return {prefix + name if prefix + name in names else name: at for name, at in folder.tensors.items()}


def _same(one: StoredTensor, other: StoredTensor) -> bool:
    return one.shape == other.shape and np.array_equal(one.read(), other.read())


def folded(names: Iterable[str]) -> list[str]:
    """Names in their order, those that differ only in the number of the layer as one: `h.[0-11].ln_1.weight`."""
    groups: dict[str, list[int]] = {}
    for name in names:
        number = re.search(r"(?<=\.)\d+(?=\.)", name)
        key = f"{name[: number.start()]}*{name[number.end() :]}" if number else name
        groups.setdefault(key, []).extend([int(number[0])] if number else [])
    return [key.replace("*", _ranges(numbers)) if numbers else key for key, numbers in groups.items()]


def _ranges(numbers: list[int]) -> str:
    """[0, 1, 2, 5] as `[0-2,5]`, [7] as `7`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return text if len(numbers) == 1 else f"[{text}]"


def read_weights(folder: HfFolder, weight_map: WeightMap) -> Iterator[tuple[str, np.ndarray]]:
    """Our name and values (float32) of each parameter, one tensor of theirs in memory at a time.

    Run `check_tensors` first. InputError: a weight that is NaN or infinite.
    """
    stored = _by_hf_name(folder, weight_map)
    for tensor in weight_map.tensors:
        array = stored[tensor.hf_name].read()
        if not np.isfinite(array).all():
            raise InputError(Problem(f"{tensor.hf_name} holds NaN or infinity", stored[tensor.hf_name].file))
        yield from tensor.from_hf(array).items()


def export_folder(
    path: str | Path,
    config: Mapping[str, Any],
    weight_map: WeightMap,
    weights: Mapping[str, np.ndarray],
    dtype: str = "float32",
    max_shard_bytes: int = MAX_SHARD_BYTES,
    on_tensor: Callable[[int], None] = lambda nbytes: None,
    others: Mapping[str, bytes] | None = None,
) -> None:
    """Write a folder that `from_pretrained` reads; it appears whole or not at all.

    `config` is the content of config.json without the dtype, `weights` our parameters by name. A tensor larger than
    `max_shard_bytes` has a shard for itself. `on_tensor` is called with the bytes of each tensor before it is written.
    `others` are further files by name: those of the tokenizer.
    Import and export in the dtype of the files give the same bits back.

    InputError: the folder exists, weights missing, unexpected, of another shape, or too large for `dtype`.
    RunError: the disk is full or cannot be written.
    """
    path = Path(path)
    _check_export(path, weight_map, weights, dtype)
    try:
        with new_directory(path) as folder:
            _write_folder(folder, config, weight_map, weights, dtype, max_shard_bytes, on_tensor)
            for name, content in (others or {}).items():
                (folder / name).write_bytes(content)
    except OSError as error:
        raise RunError(f"{path}: cannot be written: {error.strerror or error}") from error


def _check_export(path: Path, weight_map: WeightMap, weights: Mapping[str, np.ndarray], dtype: str) -> None:
    problems = []
    if path.exists():
        problems.append(f"{path} exists; give a folder that does not")
    if dtype not in DTYPES:
        problems.append(f"dtype ({dtype}) must be one of {', '.join(DTYPES)}")
    shapes = weight_map.shapes()
    problems += [f"{name} is missing" for name in folded(name for name in shapes if name not in weights)]
    problems += [f"{name} is not a weight of this model" for name in folded(n for n in weights if n not in shapes)]
    problems += folded(
        f"{name} has shape {tuple(weights[name].shape)}, the configuration asks for {shape}"
        for name, shape in shapes.items()
        if name in weights and tuple(weights[name].shape) != shape
    )
    if problems:
        raise InputError(problems)


def _write_folder(
    folder: Path,
    config: Mapping[str, Any],
    weight_map: WeightMap,
    weights: Mapping[str, np.ndarray],
    dtype: str,
    max_shard_bytes: int,
    on_tensor: Callable[[int], None],
) -> None:
    def arrays(names: list[str]) -> Iterator[tuple[str, np.ndarray]]:
        for name in names:
            on_tensor(math.prod(shapes[name]) * width)
            yield name, by_name[name].to_hf(weights)

    width = DTYPES[dtype][1]
    by_name = {tensor.hf_name: tensor for tensor in weight_map.tensors}
    shapes = {name: tensor.hf_shape for name, tensor in by_name.items()}
    shards = _shards(shapes, width, max_shard_bytes)
    files = [SINGLE] if len(shards) == 1 else [_shard_name(i + 1, len(shards)) for i in range(len(shards))]
    for file, names in zip(files, shards, strict=True):
        write_file(folder / file, arrays(names), {name: shapes[name] for name in names}, dtype)
    if len(shards) > 1:
        size = sum(math.prod(shape) for shape in shapes.values())
        index = {
            "metadata": {"total_parameters": size, "total_size": size * width},
            "weight_map": {name: file for file, names in zip(files, shards, strict=True) for name in names},
        }
        (folder / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    # "dtype" is the newer name; every version of transformers reads this one.
    (folder / CONFIG).write_text(json.dumps({**config, "torch_dtype": dtype}, indent=2) + "\n", encoding="utf-8")


def _shard_name(number: int, count: int) -> str:
    return f"model-{number:05d}-of-{count:05d}.safetensors"


def _shards(shapes: Mapping[str, tuple[int, ...]], width: int, max_bytes: int) -> list[list[str]]:
    """Names in their order, cut into shards of at most `max_bytes`, each with at least one tensor."""
    shards: list[list[str]] = [[]]
    room = max_bytes
    for name, shape in shapes.items():
        size = math.prod(shape) * width
        if shards[-1] and size > room:
            shards.append([])
            room = max_bytes
        shards[-1].append(name)
        room -= size
    return shards
