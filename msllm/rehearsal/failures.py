"""What the framework's words on a failed compilation mean for the person who wrote the strategy."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from msllm.config.origin import Fault, LoadedConfig
from msllm.errors import Problem

_DIVISION = re.compile(
    r"(?P<operator>\w+?)Info\d*: .*?strategy is (?P<strategy>\(.*\)), shape is (?P<shape>\[.*?\]), "
    r"shape value (?P<size>\d+) at dim index (?P<axis>\d+) cannot be divisible by strategy value (?P<parts>\d+)"
)
_FRAME = re.compile(r"In file (?P<file>\S+?):(?P<line>\d+)(?:~\d+)?, .*?/ *(?P<code>\S.*?)/?$", re.MULTILINE)
_ERROR = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception): (?P<text>.+)$", re.MULTILINE)
_DEGREES = ("data_parallel", "model_parallel", "pipeline_stage", "micro_batch_num")


def explain_failure(log: str, loaded: LoadedConfig) -> list[Problem]:
    """The framework's message in the terms of the configuration: which operation, which line of which YAML, what to change.

    Where a message is not known, its own last words and the line of ours that it was about.
    """
    found = [*_not_divisible(log, loaded), *_micro_batches(log), *_device_number(log, loaded)]
    if found:
        return loaded.origins.locate(list(dict.fromkeys(found)))
    words = [match["text"] for match in _ERROR.finditer(log)]
    text = words[-1] if words else "the process ended without a message"
    return [Problem(f"MindSpore could not compile the step: {text}{_where(log)}")]


def _not_divisible(log: str, loaded: LoadedConfig) -> Iterator[Fault]:
    for match in _DIVISION.finditer(log):
        size, parts = int(match["size"]), int(match["parts"])
        sizes, degrees = _fields_of_value(loaded, size), _degrees_of_value(loaded, parts)
        named = " or ".join(path.partition(".")[2] for path in sizes) or f"axis {match['axis']} of {match['shape']}"
        cut = " or ".join(path.partition(".")[2] for path in degrees) or "the strategy"
        yield Fault(
            f"{named} ({size}) cannot be cut in {parts} parts, as {cut} asks of operation {match['operator']}"
            f"{_where(log)}; change one of the two",
            (*sizes, *degrees),
        )


def _micro_batches(log: str) -> Iterator[Fault]:
    match = re.search(r"size of micro_batch is (\d+) and the stage_num is (\d+)", log)
    if match:
        yield Fault(
            f"micro_batch_num ({match[1]}) must be at least pipeline_stage ({match[2]})",
            ("parallel_config.micro_batch_num", "parallel_config.pipeline_stage"),
        )


def _device_number(log: str, loaded: LoadedConfig) -> Iterator[Fault]:
    match = re.search(
        r"device_num' must be divisible by 8, or equal to 1, 2 or 4, but got the value of device_num: (\d+)", log
    )
    if match:
        yield Fault(
            f"MindSpore takes 1, 2, 4 or a multiple of 8 devices, and the strategy needs {match[1]}",
            tuple(f"parallel_config.{name}" for name in _DEGREES[:3]),
        )


def _fields_of_value(loaded: LoadedConfig, value: int) -> tuple[str, ...]:
    sections = {"model": loaded.config.model, "data": loaded.config.data, "training": loaded.config.training}
    return tuple(
        f"{section}.{name}"
        for section, values in sections.items()
        for name in type(values).model_fields
        if getattr(values, name) == value and not isinstance(getattr(values, name), bool)
    )


def _degrees_of_value(loaded: LoadedConfig, value: int) -> tuple[str, ...]:
    parallel = loaded.config.parallel_config
    return tuple(f"parallel_config.{name}" for name in _DEGREES if getattr(parallel, name) == value)


def _where(log: str) -> str:
    """The innermost line of a layer or model that the message is about."""
    for match in _FRAME.finditer(log):
        file = Path(match["file"])
        if "layers" in file.parts or "models" in file.parts:
            return f" ({'/'.join(file.parts[-2:])}:{match['line']}: {match['code'].strip()})"
    return ""
