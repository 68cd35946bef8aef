"""`msllm data verify`: is a dataset what the manifest says? MindSpore itself reads damaged files without a word."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from data_tools.progress import Progress
from data_tools.streams import HashedRange
from data_tools.words import counted
from data_tools.workdir import dataset_files
from msllm.data.manifest import MANIFEST_NAME, Manifest, ShardInfo, read_manifest
from msllm.data.mindrecord import count_rows, index_of, read_rows
from msllm.errors import InputError, RunError

HASH_THREADS = 4


@dataclass(frozen=True)
class Damage:
    """One file that is not as it should be."""

    file: str
    kind: str
    """missing, unreadable, cut, longer, changed, double, stale, manifest or rows"""
    detail: str


@dataclass(frozen=True)
class Verification:
    """What was found."""

    directory: Path
    damages: tuple[Damage, ...]
    others: tuple[str, ...]
    """Files that are no part of the dataset and do no harm."""
    files: int
    bytes: int
    rows_decoded: int

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "directory": str(self.directory),
            "ok": not self.damages,
            "files": self.files,
            "bytes": self.bytes,
            "rows_decoded": self.rows_decoded,
            "damaged": [asdict(damage) for damage in self.damages],
            "others": list(self.others),
        }


@dataclass(frozen=True)
class _Expected:
    """A file as the manifest has it."""

    name: str
    size: int | None
    sha256: str


def verify(
    directory: str | Path, deep: bool = False, on_bytes: Callable[[int], None] = lambda count: None
) -> Verification:
    """Compare every file of a dataset folder with its manifest.

    Args:
        directory: the dataset.
        deep: also decode every row and check its length, its ids and how rows follow one another.
        on_bytes: called with every number of bytes read, from several threads.

    Raises:
        InputError: the folder is no dataset at all.
    """
    directory = Path(directory)
    try:
        manifest = read_manifest(directory)
    except InputError as error:
        if not (directory / MANIFEST_NAME).is_file():
            raise
        damage = Damage(MANIFEST_NAME, "manifest", error.problems[0].message)
        return Verification(directory, (damage,), (), 1, 0, 0)
    expected = expected_files(manifest)
    damages = [*_totals(manifest)]
    with ThreadPoolExecutor(HASH_THREADS) as pool:
        found = list(pool.map(lambda file: _check_file(directory, file, manifest, on_bytes), expected))
    damages += [damage for damage in found if damage]
    strangers = sorted(set(os.listdir(directory)) - dataset_files(manifest))
    shards = [name for name in strangers if name.endswith((".mindrecord", ".mindrecord.db"))]
    others = tuple(name for name in strangers if name not in shards)
    damages += [_stranger(directory / name, manifest) for name in shards]
    broken = {damage.file for damage in damages}
    rows = 0
    for shard in manifest.shards:
        if not broken & {shard.file, index_of(shard.file).name}:
            damages += _row_count(directory, shard)
            if deep:
                damages += _decode(directory, manifest, shard)
                rows += shard.rows
    total = sum(file.size or 0 for file in expected)
    return Verification(directory, tuple(damages), others, len(expected) + 1, total, rows)


def verify_with_progress(directory: str | Path, deep: bool = False) -> Verification:
    """`verify`, with a progress bar on stderr."""
    manifest_there = (Path(directory) / MANIFEST_NAME).is_file()
    size = sum(entry.stat().st_size for entry in Path(directory).iterdir() if entry.is_file()) if manifest_there else 0
    with Progress("verify", size) as progress:
        return verify(directory, deep, progress.advance)


def expected_files(manifest: Manifest) -> list[_Expected]:
    """Every file of a dataset but its manifest, each once."""
    files = {manifest.tokenizer.file: _Expected(manifest.tokenizer.file, None, manifest.tokenizer.fingerprint)}
    for shard in manifest.shards:
        index = index_of(shard.file).name
        files[shard.file] = _Expected(shard.file, shard.bytes, shard.sha256)
        files[index] = _Expected(index, shard.index_bytes, shard.index_sha256)
    return list(files.values())


def _totals(manifest: Manifest) -> Iterator[Damage]:
    """A manifest that contradicts itself; its checksum holds, so a program wrote it so."""
    names = [shard.file for shard in manifest.shards]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Damage(
            MANIFEST_NAME, "double", f"lists {name} {names.count(name)} times: its rows would be read as often"
        )
    rows = sum(shard.rows for shard in manifest.shards)
    if rows != manifest.rows:
        yield Damage(MANIFEST_NAME, "manifest", f"rows ({manifest.rows}) must be the sum over the shards ({rows})")
    if manifest.max_token_id >= manifest.vocab_size:
        ids = f"max_token_id ({manifest.max_token_id}) must be below vocab_size ({manifest.vocab_size})"
        yield Damage(MANIFEST_NAME, "manifest", ids)


def _check_file(directory: Path, file: _Expected, manifest: Manifest, on_bytes: Callable[[int], None]) -> Damage | None:
    path = directory / file.name
    try:
        size = path.stat().st_size
        digest = _sha256(path, on_bytes)
    except FileNotFoundError:
        return Damage(file.name, "missing", "the manifest lists it")
    except OSError as error:
        return Damage(file.name, "unreadable", str(error.strerror))
    if digest == file.sha256:
        return None
    for shard in manifest.shards:
        if digest in (shard.sha256, shard.index_sha256):
            return Damage(file.name, "double", f"holds the content of {shard.file}{_index_mark(shard, digest)}")
    if file.size is not None and size != file.size:
        return Damage(file.name, "cut" if size < file.size else "longer", f"{size} bytes, should be {file.size}")
    return Damage(file.name, "changed", "its sha256 is not the manifest's")


def _index_mark(shard: ShardInfo, digest: str) -> str:
    return "'s index" if digest == shard.index_sha256 else ""


def _stranger(path: Path, manifest: Manifest) -> Damage:
    """A MindRecord file that the manifest does not know."""
    contents = {shard.sha256: shard.file for shard in manifest.shards}
    if path.is_file() and (original := contents.get(_sha256(path))):
        return Damage(path.name, "double", f"a copy of {original}: who lists the folder reads its rows twice")
    return Damage(path.name, "stale", "not in the manifest: left by another conversion, or copied here by mistake")


def _sha256(path: Path, on_bytes: Callable[[int], None] = lambda count: None) -> str:
    with HashedRange(str(path), 0, path.stat().st_size, on_bytes) as raw:
        return raw.finish()


def _row_count(directory: Path, shard: ShardInfo) -> Iterator[Damage]:
    try:
        rows = count_rows(directory / shard.file)
    except RunError as error:
        yield Damage(shard.file, "rows", str(error))
        return
    if rows != shard.rows:
        yield Damage(shard.file, "rows", f"its index lists {counted(rows, 'row')}, should be {shard.rows}")


def _decode(directory: Path, manifest: Manifest, shard: ShardInfo) -> Iterator[Damage]:
    """Read every row of a shard as a training run would."""
    rows = ends = 0
    before: int | None = None
    try:
        for row in read_rows([str(directory / shard.file)]):
            if row.dtype != np.int32 or row.shape != (manifest.seq_length + 1,):
                want = f"int32 ({manifest.seq_length + 1},)"
                yield Damage(shard.file, "rows", f"row {rows} is {row.dtype} {row.shape}, should be {want}")
                return
            if row.min() < 0 or row.max() >= manifest.vocab_size:
                bad = row[(row < 0) | (row >= manifest.vocab_size)][0]
                yield Damage(
                    shard.file, "rows", f"row {rows} has the id {bad}, ids must be in 0..{manifest.vocab_size - 1}"
                )
                return
            if before is None:
                ends += int(row[0] == manifest.eod_id)
            elif row[0] != before:
                yield Damage(shard.file, "rows", f"row {rows} does not begin with the last token of the row before")
                return
            before = int(row[-1])
            rows += 1
            ends += int((row[1:] == manifest.eod_id).sum())
    except RunError as error:
        yield Damage(shard.file, "rows", f"row {rows} cannot be read: {error}")
        return
    if rows != shard.rows:
        yield Damage(shard.file, "rows", f"{counted(rows, 'row')} can be read, should be {shard.rows}")
    elif shard.dropped_tokens == 0 and ends < shard.documents + shard.padding_tokens:
        least = shard.documents + shard.padding_tokens
        yield Damage(shard.file, "rows", f"{ends} EOD tokens, should be at least {least} (documents and padding)")
