"""What one rank reads: batches of rows in the run's order, from any position, through MindSpore's MindDataset."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from msllm.config.sections import DataConfig, ModelConfig
from msllm.data.manifest import INDEX_SUFFIX, Manifest
from msllm.data.mindrecord import COLUMN
from msllm.data.sampler import RankShare, SampleOrder
from msllm.errors import InputError, Problem

WINDOW = 1 << 20
"""Rows that one MindDataset is given: its index sampler costs memory and start-up time for each."""


def check_dataset(manifest: Manifest, data: DataConfig, model: ModelConfig, smallest: int = 1) -> None:
    """Refuse a dataset that does not fit the configuration or lacks files, before the first batch.

    Raises:
        InputError: another seq_length, ids beyond the model's vocabulary, fewer rows than `smallest`, or files that are
            missing or not as long as the manifest says; what else could be wrong with them shows `msllm data verify`.
    """
    place = manifest.directory
    problems = missing_files(manifest)
    if manifest.seq_length != data.seq_length:
        problems.append(
            f"the dataset has rows of seq_length {manifest.seq_length}, data.seq_length is {data.seq_length}; set "
            f"data.seq_length={manifest.seq_length} or convert again with --seq-length {data.seq_length}"
        )
    if manifest.max_token_id >= model.vocab_size:
        problems.append(
            f"the dataset holds token id {manifest.max_token_id}, model.vocab_size ({model.vocab_size}) ends before it; "
            f"set model.vocab_size to at least {manifest.vocab_size}, the tokenizer's vocabulary"
        )
    elif manifest.vocab_size > model.vocab_size:
        problems.append(
            f"the dataset's tokenizer has {manifest.vocab_size} ids, model.vocab_size ({model.vocab_size}) must be at "
            f"least that"
        )
    if manifest.rows < smallest:
        problems.append(
            f"the dataset has {manifest.rows} {'row' if manifest.rows == 1 else 'rows'}, training.global_batch_size "
            f"({smallest}) is more than that; lower it, or convert more text or with a smaller --seq-length"
        )
    if problems:
        raise InputError([Problem(text, place) for text in problems])


def missing_files(manifest: Manifest) -> list[str]:
    """The manifest's files that are missing or have another length; MindRecord ends in an exception of its own there."""
    sizes = {shard.file: shard.bytes for shard in manifest.shards}
    sizes |= {shard.file + INDEX_SUFFIX: shard.index_bytes for shard in manifest.shards}
    found = []
    for name, size in sizes.items():
        path = manifest.directory / name
        if not path.is_file():
            found.append(f"{name} is missing; see `msllm data verify {manifest.directory}`")
        elif path.stat().st_size != size:
            found.append(
                f"{name} has {path.stat().st_size} bytes, the manifest says {size}; "
                f"see `msllm data verify {manifest.directory}`"
            )
    return found


def check_same_tokenizer(train: Manifest, other: Manifest) -> None:
    """Refuse two datasets whose ids mean different text.

    Raises:
        InputError: with both fingerprints.
    """
    if train.tokenizer.fingerprint != other.tokenizer.fingerprint:
        raise InputError(
            Problem(
                f"made with another tokenizer ({other.tokenizer.fingerprint[:12]}) than {train.directory} "
                f"({train.tokenizer.fingerprint[:12]}); convert both with one tokenizer",
                other.directory,
            )
        )


def reader_threads(wanted: int) -> int:
    """`num_parallel_workers` as MindSpore takes it: above the core count it would refuse."""
    return min(wanted, os.cpu_count() or 1)


class RankBatches:
    """Batches of one rank, from a global position on, without end: epoch follows epoch.

    Args:
        manifest: of the dataset.
        order: row of every global sample.
        share: this rank's part of each global batch.
        data: reader threads and prefetch.
    """

    def __init__(self, manifest: Manifest, order: SampleOrder, share: RankShare, data: DataConfig):
        self.manifest, self.order, self.share, self.data = manifest, order, share, data
        # MindRecord takes at most as many indices as the files have rows.
        self.window_steps = max(1, min(WINDOW, manifest.rows) // share.local_batch_size)

    def dataset(self, position: int, steps: int) -> Any:
        """MindDataset of `steps` batches from global position `position`: column input_ids (local, S + 1) int32."""
        import mindspore.dataset as ds

        rows = self.order.rows_at(self.share.positions(position, steps))
        dataset = ds.MindDataset(
            self.manifest.files(),
            columns_list=[COLUMN],
            num_parallel_workers=reader_threads(self.data.num_parallel_workers),
            sampler=ds.SubsetSampler(rows.tolist()),
        )
        return dataset.batch(self.share.local_batch_size, drop_remainder=True)

    def batches(self, position: int, steps: int) -> Iterator[np.ndarray]:
        """`steps` batches from global position `position`, each (local, S + 1) int32."""
        import mindspore.dataset as ds

        ds.config.set_prefetch_size(self.data.prefetch_size)
        while steps > 0:
            count = min(steps, self.window_steps)
            dataset = self.dataset(position, count)
            for (batch,) in dataset.create_tuple_iterator(num_epochs=1, output_numpy=True):
                yield batch
            position += count * self.share.global_batch_size
            steps -= count

    def row_ids(self, position: int) -> list[int]:
        """Rows of this rank's batch at global position `position`."""
        return self.order.rows_at(self.share.positions(position, 1)).tolist()
