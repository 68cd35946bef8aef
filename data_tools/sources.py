"""Which input files a command reads: folders and patterns become a list that does not depend on the file system."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from data_tools.words import counted
from msllm.errors import InputError, Problem

Kind = Literal["text", "lines", "json", "parquet"]
Compression = Literal["", "gzip", "zstd"]

KINDS: dict[str, Kind] = {".txt": "text", ".md": "text", ".jsonl": "lines", ".json": "json", ".parquet": "parquet"}
COMPRESSIONS: dict[str, Compression] = {".gz": "gzip", ".zst": "zstd"}
SUPPORTED = ".txt .md .jsonl .json, each also with .gz or .zst behind it, and .parquet"


@dataclass(frozen=True)
class Source:
    """One input file."""

    path: str
    """Absolute path."""
    name: str
    """Path below the input that named it, with / between folders: the same on every machine."""
    kind: Kind
    compression: Compression
    size: int
    """Bytes on disk."""
    mtime_ns: int


@dataclass
class Inputs:
    """What was found: the files in reading order, and what was left out and why."""

    sources: list[Source] = field(default_factory=list)
    ignored: list[tuple[str, str]] = field(default_factory=list)
    """(path, reason)"""

    @property
    def size(self) -> int:
        """Bytes on disk of all sources."""
        return sum(source.size for source in self.sources)


def find_sources(inputs: Sequence[str | Path], own: Mapping[str | Path, str] | None = None) -> Inputs:
    """List the files that `inputs` name, in the order of the inputs, folders by name.

    Args:
        inputs: files, folders (with all below them) and patterns (`**` crosses folders).
        own: path -> reason of files and folders that are no input although they may lie among them, as the output.

    Raises:
        InputError: inputs that do not exist, match nothing, cannot be read or have an unknown extension; all at once.
    """
    found = Inputs()
    problems: list[Problem] = []
    skip = {os.path.realpath(path): reason for path, reason in (own or {}).items()}
    seen: set[str] = set()
    for argument in map(str, inputs):
        paths = (
            [argument] if os.path.lexists(argument) else sorted(glob.glob(argument, recursive=True), key=os.fsencode)
        )
        if not paths:
            what = "matches no file" if glob.has_magic(argument) else "no such file or folder"
            problems.append(Problem(f"--input {what}", argument))
        for path in paths:
            explicit = len(paths) == 1 and path == argument
            for file, name, real in _files_below(path, skip, found.ignored):
                if real in seen:
                    found.ignored.append((file, "named twice"))
                elif _take(file, name, explicit and file == path, found, problems):
                    seen.add(real)
    if problems:
        raise InputError(problems)
    if not found.sources:
        left_out = f" (left out: {counted(len(found.ignored), 'file')})" if found.ignored else ""
        raise InputError(f"--input names no file to read{left_out}; files end in {SUPPORTED}")
    return found


def kind_of(name: str) -> tuple[Kind, Compression] | None:
    """What a file's name says it holds; None where it is nothing that can be read."""
    stem, extension = os.path.splitext(name.lower())
    compression = COMPRESSIONS.get(extension, "")
    if compression:
        extension = os.path.splitext(stem)[1]
    kind = KINDS.get(extension)
    if kind is None or (kind == "parquet" and compression):
        return None
    return kind, compression


def _take(file: str, name: str, explicit: bool, found: Inputs, problems: list[Problem]) -> bool:
    """Add one file to what was found, or say why not."""
    kinds = kind_of(file)
    if kinds is None and explicit:
        problems.append(Problem(f"cannot be read as text: its name must end in {SUPPORTED}", file))
    elif kinds is None:
        found.ignored.append((file, "unknown extension"))
    elif not os.access(file, os.R_OK):
        problems.append(Problem("cannot be read: permission denied", file))
    else:
        status = os.stat(file)
        found.sources.append(Source(os.path.abspath(file), name, *kinds, status.st_size, status.st_mtime_ns))
        return True
    return False


def _files_below(path: str, skip: Mapping[str, str], ignored: list[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield (path, name, path without links) of a file, or of all files of a folder in the order of their names' bytes."""
    top = os.path.realpath(path)
    stack = [(path, _printable(os.path.basename(os.path.normpath(path))), top, frozenset[str](), os.path.isdir(path))]
    while stack:
        path, name, real, above, is_folder = stack.pop()
        if real in skip:
            ignored.append((path, skip[real]))
        elif above and os.path.basename(path).startswith("."):
            ignored.append((path, "hidden"))
        elif real in above:
            ignored.append((path, "link to a folder above it"))
        elif is_folder:
            inner = above | {real}
            with os.scandir(path) as found:
                entries = sorted(found, key=lambda entry: os.fsencode(entry.name), reverse=True)
            for entry in entries:
                # Working out every path from the root would take most of the time where there are many files.
                child = os.path.realpath(entry.path) if entry.is_symlink() else f"{real}/{entry.name}"
                stack.append((entry.path, f"{name}/{_printable(entry.name)}", child, inner, entry.is_dir()))
        elif os.path.isfile(path):
            yield path, name, real
        else:
            ignored.append((path, "neither a file nor a folder"))


def _printable(name: str) -> str:
    """A file name as text, bytes that are not UTF-8 written as \\xNN."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")
