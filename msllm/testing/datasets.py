"""Small datasets without text or tokenizer."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from msllm.data.manifest import (
    INDEX_SUFFIX,
    ConvertOptions,
    Manifest,
    ShardInfo,
    TokenizerInfo,
    read_manifest,
    write_manifest,
)
from msllm.data.mindrecord import MindRecordWriter
from msllm.files import sha256_of


def counting_rows(rows: int, seq_length: int, vocab_size: int, seed: int = 0) -> np.ndarray:
    """Rows that a model can learn: each counts up from a random start by a random stride of 1 to 3, modulo the vocabulary.

    (rows, seq_length + 1) int32.
    """
    random = np.random.default_rng(seed)
    start = random.integers(0, vocab_size, (rows, 1))
    stride = random.integers(1, 4, (rows, 1))
    return ((start + stride * np.arange(seq_length + 1)) % vocab_size).astype(np.int32)


def write_dataset(directory: Path, tokens: np.ndarray, vocab_size: int, shards: int = 1) -> Manifest:
    """Write rows (n, seq_length + 1) int32 as a dataset of `shards` files that `msllm train` takes."""
    directory.mkdir(parents=True)
    (directory / "tokenizer.model").write_bytes(b"no tokenizer: made of numbers")
    infos = []
    for number, part in enumerate(np.array_split(tokens, shards)):
        file = directory / f"data_{number}.mindrecord"
        writer = MindRecordWriter(file, tokens.shape[1] - 1, part.size)
        writer.write(part)
        writer.commit()
        index = file.with_name(file.name + INDEX_SUFFIX)
        infos.append(
            ShardInfo(
                file=file.name,
                rows=len(part),
                tokens=part.size,
                documents=len(part),
                padding_tokens=0,
                dropped_tokens=0,
                forced_cuts=0,
                max_token_id=int(part.max()),
                bytes=file.stat().st_size,
                sha256=sha256_of(file),
                index_bytes=index.stat().st_size,
                index_sha256=sha256_of(index),
            )
        )
    manifest = Manifest(
        seq_length=tokens.shape[1] - 1,
        rows=len(tokens),
        tokens=tokens.size,
        documents=len(tokens),
        padding_tokens=0,
        dropped_tokens=0,
        eod_id=0,
        vocab_size=vocab_size,
        max_token_id=int(tokens.max()),
        tokenizer=TokenizerInfo(
            type="sentencepiece", file="tokenizer.model", fingerprint=sha256_of(directory / "tokenizer.model")
        ),
        options=ConvertOptions(seq_length=tokens.shape[1] - 1, shards=shards),
        versions={},
        skipped={},
        sources=(),
        shards=tuple(infos),
    )
    write_manifest(directory, manifest)
    return read_manifest(directory)
