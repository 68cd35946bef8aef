"""Hugging Face's safetensors files in NumPy, one tensor at a time.

The format: 8 bytes little-endian length, a JSON header {name: {dtype, shape, data_offsets}}, the bytes of the tensors
(github.com/huggingface/safetensors, README). The library's NumPy side has no bfloat16 and wants a whole file in memory,
hence these lines. Numbers are float32 on our side; float16 and bfloat16 widen without loss and narrow back exactly.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from msllm.errors import InputError, Problem

DTYPES = {"float32": ("F32", 4), "float16": ("F16", 2), "bfloat16": ("BF16", 2)}
"""Our name of a dtype -> the name in a header and the bytes of one element."""
_NAMES = {code: name for name, (code, _) in DTYPES.items()}
_MAX_HEADER = 100_000_000  # bytes; the library's own limit


@dataclass(frozen=True)
class StoredTensor:
    """Where a tensor lies: `dtype` as in the header, `start` in bytes from the beginning of `file`."""

    file: Path
    dtype: str
    shape: tuple[int, ...]
    start: int
    nbytes: int

    def read(self) -> np.ndarray:
        """The values as float32."""
        with open(self.file, "rb") as file:
            file.seek(self.start)
            raw = file.read(self.nbytes)
        return decode(raw, _NAMES[self.dtype]).reshape(self.shape)


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Every tensor of a file, by name. InputError: cut, not a safetensors file, or of a dtype other than DTYPES."""
    size = path.stat().st_size
    with open(path, "rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if start == b"version " and size < 1024:
            raise InputError(Problem("is a pointer of Git LFS, not the weights; fetch them with 'git lfs pull'", path))
        if len(start) < 8 or length > _MAX_HEADER:
            raise InputError(Problem(f"is not a safetensors file, or cut ({size} bytes)", path))
        if 8 + length > size:
            raise InputError(Problem(f"is cut: {size} bytes, of which the header alone takes {8 + length}", path))
        text = file.read(length)
    try:
        header = json.loads(text)
        header.pop("__metadata__", None)
        tensors = {name: _stored(path, 8 + length, fields) for name, fields in header.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise InputError(Problem(f"has a damaged header: {error}", path)) from None
    _check_bytes(path, size, 8 + length, tensors)
    return tensors


def _stored(path: Path, data_start: int, fields: dict) -> StoredTensor:
    begin, end = fields["data_offsets"]
    shape = tuple(fields["shape"])
    if not all(isinstance(number, int) and number >= 0 for number in (begin, end, *shape)):
        raise ValueError(f"{fields} are not sizes and offsets")
    return StoredTensor(path, str(fields["dtype"]), shape, data_start + begin, end - begin)


def _check_bytes(path: Path, size: int, data_start: int, tensors: dict[str, StoredTensor]) -> None:
    """The tensors must fill the file from the header to its end, without gap or overlap."""
    problems = []
    position = data_start
    for name, tensor in sorted(tensors.items(), key=lambda item: (item[1].start, item[1].nbytes)):
        if tensor.dtype not in _NAMES:
            problems.append(f"{name} has dtype {tensor.dtype}; only {', '.join(_NAMES)} can be read")
        elif tensor.nbytes != math.prod(tensor.shape) * DTYPES[_NAMES[tensor.dtype]][1]:
            problems.append(f"{name}: {tensor.nbytes} bytes do not hold {tensor.shape} of {tensor.dtype}")
        if tensor.start != position:
            problems.append(f"{name} begins at byte {tensor.start}, expected {position}: the header is damaged")
        position = tensor.start + tensor.nbytes
    if size < position:
        problems.append(f"is cut: {size} bytes, its header describes {position}")
    elif size > position:
        problems.append(f"has {size - position} bytes more than its header describes")
    if problems:
        raise InputError([Problem(message, path) for message in problems])


def write_file(path: Path, tensors: Iterable[tuple[str, np.ndarray]], shapes: dict[str, tuple], dtype: str) -> None:
    """Write float32 `tensors`, which come in the order of `shapes`, as `dtype`.

    InputError where a value cannot be written in `dtype`; the file is then incomplete: write into a temporary folder.
    """
    code, width = DTYPES[dtype]
    header: dict[str, dict] = {"__metadata__": {"format": "pt"}}  # transformers asks for this entry
    position = 0
    for name, shape in shapes.items():
        end = position + math.prod(shape) * width
        header[name] = {"dtype": code, "shape": list(shape), "data_offsets": [position, end]}
        position = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for name, array in tensors:
            try:
                file.write(encode(array, dtype))
            except ValueError as error:
                raise InputError(f"{name} {error}") from None


def decode(raw: bytes, dtype: str) -> np.ndarray:
    """Little-endian bytes of float32, float16 or bfloat16 as a flat float32 array."""
    if dtype == "bfloat16":
        return (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
    return np.frombuffer(raw, {"float32": "<f4", "float16": "<f2"}[dtype]).astype(np.float32)


def encode(array: np.ndarray, dtype: str) -> bytes:
    """Bytes of a float32 array in `dtype`, rounded to nearest even. ValueError: not finite, or too large for it."""
    array = np.ascontiguousarray(array, np.float32)
    if not np.isfinite(array).all():
        raise ValueError("holds NaN or infinity")
    if dtype == "float32":
        return array.astype("<f4").tobytes()
    with np.errstate(over="ignore"):
        half = array.astype("<f2") if dtype == "float16" else _bfloat16(array)
    infinity = half & 0x7F80 == 0x7F80 if dtype == "bfloat16" else np.isinf(half)
    if infinity.any():
        raise ValueError(f"reaches {np.abs(array).max():.4g}, more than {dtype} can hold")
    return half.tobytes()


def _bfloat16(array: np.ndarray) -> np.ndarray:
    """Upper halves of finite float32 numbers, rounded to nearest even, as uint16."""
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2")
