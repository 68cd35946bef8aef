"""What a dataset folder says about itself: `manifest.json`.

A dataset is a folder of MindRecord files, a copy of the tokenizer and this manifest. The manifest is written last and
atomically, so a folder without one is no dataset: its conversion has not ended. It carries the sha256 of every other
file and a checksum of itself, because neither MindRecord nor MindSpore notices a flipped bit, and it holds no time and
no path of the machine, so that the same input gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from msllm.config.sections import Section
from msllm.errors import InputError, Problem
from msllm.files import write_atomic

MANIFEST_NAME = "manifest.json"
FORMAT = "msllm-dataset"
VERSION = 1
INDEX_SUFFIX = ".db"
"""MindRecord keeps the rows of `x` in `x` and their positions in `x.db`; the pair must keep its names."""

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[int, Field(gt=0)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TokenizerInfo(Section):
    """The tokenizer that made the ids; its file is in the dataset folder."""

    type: Literal["sentencepiece", "huggingface"]
    """Library that reads the file."""
    file: str
    """Name of the copy in the dataset folder."""
    fingerprint: Sha256
    """sha256 of the file."""


class SourceInfo(Section):
    """A range of bytes of one input file that went into a shard, whole documents only."""

    file: str
    """Name below the input that was given, with / between folders."""
    start: Count
    """First byte."""
    end: Count
    """Byte after the last."""
    sha256: Sha256
    """Of the bytes of the range, compressed ones where the file is compressed."""
    shard: Count
    """Number of the shard, as in the name of its file."""


class ShardInfo(Section):
    """One MindRecord file: a stream of documents of its own, cut into rows."""

    file: str
    """Name in the dataset folder; its index is `<file>.db`."""
    rows: Positive
    """Rows of seq_length + 1 tokens."""
    tokens: Positive
    """Tokens of its documents, an EOD after each, without padding."""
    documents: Positive
    """Documents in the shard."""
    padding_tokens: Count
    """EOD tokens that fill the last row."""
    dropped_tokens: Count
    """Tokens at the end that filled no row, with tail: drop."""
    forced_cuts: Count
    """Places where a document was too long for the tokenizer and was cut where its tokens may differ."""
    max_token_id: Count
    """Largest id."""
    bytes: Positive
    """Size of the file."""
    sha256: Sha256
    """Of the file."""
    index_bytes: Positive
    """Size of the index."""
    index_sha256: Sha256
    """Of the index."""


class ConvertOptions(Section):
    """What a conversion was asked for, so far as it changes the output; the number of workers does not."""

    seq_length: Positive
    """Tokens of a row that are predicted; a row holds one more."""
    shards: Positive
    """Parts that the input was divided into; a part that fills no row has no file."""
    text_key: str = "text"
    """Key or column of the text in JSON and Parquet."""
    eod_token: str | None = None
    """Token between documents; null: the tokenizer's own."""
    tail: Literal["pad", "drop"] = "pad"
    """What happens to tokens at the end of a shard that fill no row."""


class Manifest(Section):
    """All that a reader needs to know of a dataset before it opens a MindRecord file."""

    format: Literal["msllm-dataset"] = "msllm-dataset"
    """Tells the file from other manifests."""
    version: Literal[1] = 1
    """Of the layout that this file describes."""
    seq_length: Positive
    """Tokens of a row that are predicted; a row holds seq_length + 1, and the next one begins with its last."""
    rows: Positive
    """Rows over all shards."""
    tokens: Positive
    """Tokens over all shards, EODs counted, padding not."""
    documents: Positive
    """Documents over all shards."""
    padding_tokens: Count
    """EOD tokens that fill last rows."""
    dropped_tokens: Count
    """Tokens that filled no row."""
    eod_id: Count
    """Id of the token after each document."""
    vocab_size: Positive
    """Ids that the tokenizer can give: a model's embedding has at least so many rows."""
    max_token_id: Count
    """Largest id in the data."""
    tokenizer: TokenizerInfo
    """What made the ids."""
    options: ConvertOptions
    """What was asked for."""
    versions: dict[str, str]
    """Package -> version of what wrote the dataset."""
    skipped: dict[str, Positive]
    """Kind of problem -> documents left out, with `--on-error skip`."""
    shards: tuple[ShardInfo, ...] = Field(min_length=1)
    """The files, in reading order."""
    sources: tuple[SourceInfo, ...]
    """Where the documents came from, in order."""

    _directory: Path = PrivateAttr(default=Path("."))

    @property
    def directory(self) -> Path:
        """Absolute folder that the manifest was read from."""
        return self._directory

    def files(self) -> list[str]:
        """Absolute paths of the MindRecord files, in the order in which a list of them is read."""
        return [str(self._directory / shard.file) for shard in self.shards]


def unfinished_folder(output: str | Path) -> Path:
    """Where `msllm data convert --output DIR` works until everything is there: `DIR.partial`, links followed."""
    return Path(os.path.realpath(output) + ".partial")


def manifest_text(manifest: Manifest) -> str:
    """The file's exact content; the last key is the sha256 of the rest."""
    fields = manifest.model_dump(mode="json")
    checksum = hashlib.sha256(_json(fields).encode()).hexdigest()
    return _json({**fields, "checksum": checksum}) + "\n"


def write_manifest(directory: str | Path, manifest: Manifest) -> None:
    """Write `manifest.json` whole or not at all: the moment at which a folder becomes a dataset."""
    write_atomic(Path(directory) / MANIFEST_NAME, manifest_text(manifest))


def read_manifest(directory: str | Path) -> Manifest:
    """Read and check the manifest of a dataset folder; its data files are not touched.

    Raises:
        InputError: the folder or the manifest is missing, damaged, edited, or of another version.
    """
    directory = Path(directory)
    path = directory / MANIFEST_NAME
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        raise InputError(Problem(_why_missing(directory), directory)) from None
    except NotADirectoryError:
        raise InputError(
            Problem("is a file; a dataset is a folder that `msllm data convert` wrote", directory)
        ) from None
    except OSError as error:
        raise InputError(Problem(f"cannot be read: {error.strerror}", path)) from None
    manifest = _parse(path, content)
    manifest._directory = directory.resolve()
    return manifest


def _parse(path: Path, content: bytes) -> Manifest:
    try:
        fields: Any = json.loads(content)
    except ValueError as error:
        raise InputError(Problem(f"is damaged: not JSON ({error}); convert the corpus again", path)) from None
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise InputError(Problem(f'is not the manifest of a dataset: "format" must be "{FORMAT}"', path))
    version = fields.get("version")
    if version != VERSION:
        message = f"version ({version}) must be {VERSION}, the one this msllm reads; convert the corpus again"
        raise InputError(Problem(message, path))
    fields.pop("checksum", None)
    try:
        manifest = Manifest.model_validate_json(json.dumps(fields))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = f"is damaged or was edited: {where}: {first['msg']}; convert the corpus again"
        raise InputError(Problem(message, path)) from None
    if manifest_text(manifest).encode() != content:
        raise InputError(
            Problem("is damaged or was edited: its checksum does not match; convert the corpus again", path)
        )
    return manifest


def _why_missing(directory: Path) -> str:
    unfinished = unfinished_folder(directory)
    if unfinished.is_dir():
        return f"conversion not finished ({unfinished} exists): run the same `msllm data convert` again to continue it"
    if not directory.exists():
        return "no such folder; a dataset is a folder that `msllm data convert --output` wrote"
    return f"is not a dataset: it has no {MANIFEST_NAME}, which `msllm data convert` writes last"


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, ensure_ascii=False, indent=1)
