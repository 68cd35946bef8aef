"""`msllm data inspect`: what is in a dataset, in numbers and as text."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from msllm.data.manifest import Manifest, read_manifest
from msllm.data.mindrecord import read_rows
from msllm.data.tokenizer import Tokenizer, load_tokenizer
from msllm.errors import InputError

SAMPLE_ROWS = 1000
"""Statistics of tokens come from so many rows, evenly spaced."""
FREQUENT = 20


@dataclass(frozen=True)
class Row:
    """One row, decoded."""

    index: int
    """Counted over all files, as a reader does."""
    documents: tuple[str, ...]
    """Text between EODs; the first and the last may be parts of a document."""
    ids: tuple[int, ...]


@dataclass(frozen=True)
class TokenStatistics:
    """Of the sampled rows."""

    rows: int
    distinct: int
    """Different ids."""
    eod_per_row: float
    characters_per_token: float
    frequent: tuple[tuple[int, str, int], ...]
    """(id, name in the vocabulary, count) of the most frequent ids."""


@dataclass(frozen=True)
class Inspection:
    """What `inspect` shows."""

    manifest: Manifest
    bytes: int
    """Of the MindRecord files and their indexes."""
    rows: tuple[Row, ...]
    statistics: TokenStatistics

    def to_dict(self) -> dict[str, Any]:
        """For `--json`; the manifest's lists of shards and sources are left out."""
        return {
            "directory": str(self.manifest.directory),
            **self.manifest.model_dump(mode="json", exclude={"shards", "sources"}),
            "shards": len(self.manifest.shards),
            "bytes": self.bytes,
            "statistics": asdict(self.statistics),
            "decoded_rows": [asdict(row) for row in self.rows],
        }


def inspect(directory: str | Path, rows: int = 3, start: int = 0) -> Inspection:
    """Read the manifest, decode `rows` rows from row `start` on, and count tokens in a sample.

    Raises:
        InputError: no dataset, or no such rows.
        RunError: a file cannot be read.
    """
    manifest = read_manifest(directory)
    if rows < 0 or not 0 <= start < manifest.rows:
        raise InputError(f"--start ({start}) must be in 0..{manifest.rows - 1} and --rows ({rows}) not negative")
    tokenizer = load_tokenizer(manifest.directory)
    shown = range(start, min(manifest.rows, start + rows))
    sample = [int(i) for i in np.linspace(0, manifest.rows - 1, min(SAMPLE_ROWS, manifest.rows))]
    wanted = sorted({*shown, *sample})
    read = dict(zip(wanted, read_rows(manifest.files(), wanted)))
    decoded = tuple(_decode(index, read[index], tokenizer) for index in shown)
    size = sum(shard.bytes + shard.index_bytes for shard in manifest.shards)
    return Inspection(manifest, size, decoded, _statistics(np.stack([read[index] for index in sample]), tokenizer))


def _decode(index: int, row: np.ndarray, tokenizer: Tokenizer) -> Row:
    ends = np.flatnonzero(row == tokenizer.eod_id)
    parts = np.split(row, ends)
    texts = [tokenizer.decode([int(i) for i in part if i != tokenizer.eod_id]) for part in parts]
    return Row(index, tuple(texts), tuple(int(i) for i in row))


def _statistics(rows: np.ndarray, tokenizer: Tokenizer) -> TokenStatistics:
    """Of rows, int32 (any, seq_length + 1)."""
    ids, counts = np.unique(rows[:, 1:], return_counts=True)
    order = np.argsort(-counts, kind="stable")[:FREQUENT]
    frequent = tuple((int(ids[i]), tokenizer.token(int(ids[i])), int(counts[i])) for i in order)
    characters: Counter[str] = Counter()
    for row in rows[:: max(1, len(rows) // 50)]:
        characters["tokens"] += len(row)
        characters["characters"] += len(tokenizer.decode(row.tolist()))
    return TokenStatistics(
        rows=len(rows),
        distinct=len(ids),
        eod_per_row=float((rows[:, 1:] == tokenizer.eod_id).sum() / len(rows)),
        characters_per_token=characters["characters"] / characters["tokens"],
        frequent=frequent,
    )
