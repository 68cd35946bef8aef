"""How the input is divided into shards: by its bytes alone, so that any number of workers gives the same shards.

All files stand in a row; shard k of S takes the documents that begin in the k-th of S equal stretches. A file of lines
is divided at the line after the border, a Parquet file between row groups; any other file goes whole to the shard in
which its middle lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from data_tools.sources import Source
from msllm.errors import InputError, Problem

MAX_SHARDS = 1000
COMPRESSED_WEIGHT = 4
"""Text behind a compressed byte, roughly; only the balance between shards depends on it."""

_MIB = 1 << 20


@dataclass(frozen=True)
class Unit:
    """A range of whole documents of one file: the bytes [start, end)."""

    source: Source
    start: int
    end: int
    row_groups: tuple[int, int] | None = None
    """Parquet: the row groups [first, last)."""


def find_units(sources: Sequence[Source], text_key: str) -> list[Unit]:
    """The pieces of the input as they lie in the files: whole files, and the row groups of Parquet files.

    Raises:
        InputError: Parquet files that are damaged or have no column of strings `text_key`; all at once.
    """
    units: list[Unit] = []
    problems: list[Problem] = []
    for source in sources:
        try:
            units += _row_groups(source, text_key) if source.kind == "parquet" else [Unit(source, 0, source.size)]
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(problems)
    return units


def default_shards(units: Sequence[Unit]) -> int:
    """Number of shards: one per 16 MiB of input up to 64, or one per 512 MiB where that is more.

    Not more than there are pieces, where none of them can be divided.
    """
    size = sum(unit.end - unit.start for unit in units)
    shards = max(1, min(64, -(-size // (16 * _MIB))), -(-size // (512 * _MIB)))
    if not any(map(_divisible, units)):
        shards = min(shards, max(1, len(units)))
    return min(MAX_SHARDS, shards)


def divide(units: Sequence[Unit], shards: int) -> list[list[Unit]]:
    """Units of each of `shards` shards, in reading order; a shard may be left without any."""
    total = sum(map(_weight, units))
    result: list[list[Unit]] = [[] for _ in range(shards)]
    offset = 0
    for unit in units:
        weight = _weight(unit)
        if _divisible(unit):
            for shard, part in _divide_lines(unit, offset, total, shards):
                result[shard].append(part)
        else:
            shard = min(shards - 1, (2 * offset + weight) * shards // (2 * total))
            _append(result[shard], unit)
        offset += weight
    return result


def _divisible(unit: Unit) -> bool:
    return unit.source.kind == "lines" and not unit.source.compression


def _append(units: list[Unit], unit: Unit) -> None:
    """Add a unit, as one with the row groups before it where it goes on from them."""
    last = units[-1] if units else None
    if last and last.source == unit.source and last.row_groups and unit.row_groups:
        units[-1] = Unit(unit.source, last.start, unit.end, (last.row_groups[0], unit.row_groups[1]))
    else:
        units.append(unit)


def _weight(unit: Unit) -> int:
    factor = COMPRESSED_WEIGHT if unit.source.compression or unit.row_groups else 1
    return max(1, (unit.end - unit.start) * factor)


def _divide_lines(unit: Unit, offset: int, total: int, shards: int) -> list[tuple[int, Unit]]:
    """Parts of a file of lines that stands at `offset` of `total`, with the shard of each."""
    parts = []
    start = 0
    first = offset * shards // total
    with open(unit.source.path, "rb") as file:
        for shard in range(first, shards):
            border = -(-(shard + 1) * total // shards) - offset
            end = _next_line(file, border, unit.end) if border < unit.end else unit.end
            if end > start or unit.end == 0:
                parts.append((shard, Unit(unit.source, start, end)))
                start = end
            if end >= unit.end:
                break
    return parts


def _next_line(file, place: int, end: int) -> int:
    """First start of a line at or after `place`, `end` where there is none."""
    file.seek(place - 1)
    while place - 1 < end:
        block = file.read(_MIB)
        if not block:
            break
        found = block.find(b"\n")
        if found >= 0:
            return min(end, place + found)
        place += len(block)
    return end


def _row_groups(source: Source, text_key: str) -> list[Unit]:
    """One unit per row group of a Parquet file."""
    import pyarrow
    from pyarrow import parquet

    try:
        metadata = parquet.read_metadata(source.path)
        schema = metadata.schema.to_arrow_schema()
    except (pyarrow.ArrowException, OSError) as error:
        raise InputError(Problem(f"is not a Parquet file, or is damaged: {_line(error)}", source.path)) from None
    if text_key not in schema.names:
        names = ", ".join(schema.names) or "none"
        raise InputError(Problem(f"has no column {text_key!r} (--text-key); its columns: {names}", source.path))
    kind = schema.field(text_key).type
    value = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    if not (pyarrow.types.is_string(value) or pyarrow.types.is_large_string(value)):
        raise InputError(Problem(f"column {text_key!r} must hold strings, it holds {kind}", source.path))
    units = []
    for index in range(metadata.num_row_groups):
        chunks = [metadata.row_group(index).column(column) for column in range(metadata.num_columns)]
        starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
        ends = [start + chunk.total_compressed_size for start, chunk in zip(starts, chunks)]
        units.append(Unit(source, min(starts), max(ends), (index, index + 1)))
    return units


def _line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
