"""Files that appear whole or not at all, and their checksums."""

from __future__ import annotations

import glob
import hashlib
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

CHUNK = 1 << 20


def sha256_of(path: str | Path) -> str:
    """Hex SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def fsync(path: str | Path) -> None:
    """Flush a file, or a directory's entries, to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def fsync_tree(directory: str | Path) -> None:
    """Flush every file and folder under `directory`, and itself."""
    for folder, _, names in os.walk(directory):
        for name in names:
            fsync(os.path.join(folder, name))
        fsync(folder)


def write_atomic(path: str | Path, content: str | bytes) -> None:
    """Write a file that is either the old one or the whole new one, even if power fails."""
    path = Path(path)
    data = content.encode() if isinstance(content, str) else content
    temporary = _temporary(path)
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:
            error.filename = str(path)  # a full disk is reported by write(), which knows no name
        raise
    fsync(path.parent)


@contextmanager
def new_directory(path: str | Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; at the end flush it and rename it to `path`, which must not exist.

    On an exception the temporary folder is removed and nothing appears. What a killed process leaves is removed by the next
    one that writes `path`, and by `remove_leftovers`.
    """
    path = Path(path)
    temporary = _temporary(path)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        fsync_tree(temporary)
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    fsync(path.parent)


def remove_leftovers(directory: str | Path) -> None:
    """Remove the temporary files and folders that killed processes left in `directory`, which no other machine writes now."""
    for entry in Path(directory).glob(".*.tmp-*"):
        _remove_left(entry)


def _temporary(path: Path) -> Path:
    """A name beside `path` for this process alone, once what killed processes of this machine left of `path` is gone.

    Other machines that share the disk may be writing: their processes cannot be asked for, so theirs is left alone.
    """
    stem = f".{path.name}.tmp-{socket.gethostname()}-"
    for entry in path.parent.glob(f"{glob.escape(stem)}*"):
        _remove_left(entry)
    return path.with_name(f"{stem}{os.getpid()}")


def _remove_left(entry: Path) -> None:
    pid = entry.name.rsplit("-", 1)[-1]
    if pid.isdigit() and os.path.exists(f"/proc/{pid}") and int(pid) != os.getpid():
        return
    if entry.is_dir():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        with suppress(OSError):  # another user's, in a folder for all: no reason not to write
            entry.unlink()
