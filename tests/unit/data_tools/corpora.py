"""Small corpora and what a conversion makes of them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from msllm.data.manifest import ShardInfo
from msllm.data.mindrecord import read_rows
from msllm.data.tokenizer import load_tokenizer


def write_jsonl(path: Path, documents: Sequence[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(json.dumps({"text": text}).encode() + b"\n" for text in documents))
    return path


def content(folder: Path) -> dict[str, str]:
    """sha256 of every file."""
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def stream(folder: Path, shard: ShardInfo) -> list[int]:
    """The tokens of a shard, from its rows, without padding."""
    rows = np.stack(list(read_rows([str(folder / shard.file)])))
    assert len(rows) == shard.rows and rows.dtype == np.int32
    assert np.array_equal(rows[1:, 0], rows[:-1, -1])
    tokens = [int(rows[0, 0]), *map(int, rows[:, 1:].ravel())]
    assert len(tokens) == shard.tokens + shard.padding_tokens - shard.dropped_tokens
    return tokens[: shard.tokens]


def expected(tokenizer_file: Path, documents: Sequence[str]) -> list[int]:
    tokenizer = load_tokenizer(tokenizer_file)
    return [token for text in documents for token in [*tokenizer.encode(text), tokenizer.eod_id]]
