"""Every fault of a rank table, each with its line and entry. First what stands where; then what must fit together."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from msllm.errors import InputError, Problem
from rank_tables import fields
from rank_tables.json_positions import JsonError, read_json
from rank_tables.relations import check_relations
from rank_tables.shape import ORDER, RANK, Finding, Shape
from rank_tables.table import RankTable, from_document

MAX_BYTES = 64 << 20


@dataclass
class Checked:
    """What a check found. `table` is there where a table could be read: with no faults, or with faults of ranks only."""

    faults: list[Finding] = field(default_factory=list)
    notes: list[Finding] = field(default_factory=list)
    table: RankTable | None = None


def read_table(path: Path, accept: Collection[str] = ()) -> RankTable:
    """The table of a file.

    Args:
        path: the JSON file.
        accept: rules whose faults do not matter, of ORDER and RANK: for who numbers the ranks anew.

    Raises:
        InputError: with every fault.
    """
    checked = check_file(path)
    if checked.table is None or any(fault.rule not in accept for fault in checked.faults):
        raise InputError([finding.problem(path) for finding in checked.faults])
    return checked.table


def check_file(path: Path) -> Checked:
    """Check a file; InputError where it cannot be read at all."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(Problem(f"cannot read this rank table: {error.strerror}", path)) from None
    if len(raw) > MAX_BYTES:
        raise InputError(Problem(f"larger than {MAX_BYTES >> 20} MB, so not a rank table", path))
    try:
        return check_text(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return Checked([Finding("syntax", f"not UTF-8 text: byte 0x{raw[error.start]:02x}", line=line)])


def check_text(text: str) -> Checked:
    """Check the text of a rank table."""
    try:
        top = read_json(text)
    except JsonError as error:
        return Checked([Finding("syntax", f"column {error.column}: {error}", line=error.line)])
    shape = Shape()
    shape.mapping(top, fields.TABLE, "", "the table")
    check_relations(shape)
    shape.faults.sort(key=lambda finding: finding.line or 0)
    checked = Checked(shape.faults, shape.notes)
    if all(fault.rule in (RANK, ORDER) for fault in shape.faults):
        checked.table = from_document(top.plain())
    return checked
