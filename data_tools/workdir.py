"""The folder in which a conversion works, `OUTPUT.partial`: who may write, what is finished, how it becomes the output.

OUTPUT.partial/lock                  held by the driver and its workers as long as one of them lives
               plan.json             what the conversion was started with
               output/               finished files: the dataset to be
               results/<shard>.json  written when a shard's files are in output/, flushed
               temporary/            unfinished files
               replaced/             the old dataset, for the moment between two renames
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import time
from pathlib import Path
from typing import Any

from data_tools.shard import ShardFolders, ShardJob, ShardResult
from msllm.data.backends import BackendName
from msllm.data.manifest import MANIFEST_NAME, Manifest, unfinished_folder, write_manifest
from msllm.data.mindrecord import index_of
from msllm.errors import InputError, Problem
from msllm.files import fsync, write_atomic

LOCK_WAIT_SECONDS = 3.0
"""The workers of a killed driver need a moment to die."""
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)


class WorkDirectory:
    """The working folder of one conversion; use it as a context manager, which holds the lock."""

    def __init__(self, output: Path):
        # A link to a folder elsewhere stays: the data goes where it points.
        self.output = Path(os.path.realpath(output))
        self.path = unfinished_folder(output)
        self.lock_file = self.path / "lock"
        self.folders = ShardFolders(self.path / "output", self.path / "results", self.path / "temporary")
        self._plan = self.path / "plan.json"
        self._replaced = self.path / "replaced"
        self._lock = -1

    def __enter__(self) -> WorkDirectory:
        self._lock = _lock_for_driver(self.path, self.lock_file)
        if self._replaced.exists() and not self.output.exists():
            os.rename(self._replaced, self.output)  # killed between two renames
        if self._plan.exists() and not self.folders.output.exists():
            self._clear()  # killed after the second
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self._lock)

    def start(self, identity: dict[str, Any], restart: bool) -> None:
        """Begin, or go on with what is there.

        Raises:
            InputError: what is there was started with something else, and `restart` is off.
        """
        if restart or not self.has_results():
            self._clear()
        if self._plan.exists():
            differences = _differences(json.loads(self._plan.read_text()), identity)
            if differences:
                what = "; ".join(differences)
                message = f"holds an unfinished conversion started with something else: {what}. "
                raise InputError(
                    Problem(message + "Run it as it was started, or throw it away with --restart", self.path)
                )
        else:
            self._clear()
            write_atomic(self._plan, json.dumps(identity, indent=1))
        shutil.rmtree(self.folders.temporary, ignore_errors=True)
        for folder in (self.folders.output, self.folders.results, self.folders.temporary):
            folder.mkdir(exist_ok=True)

    def has_results(self) -> bool:
        """Whether any shard is finished, so that there is something to lose."""
        return self._plan.exists() and self.folders.results.is_dir() and any(self.folders.results.iterdir())

    def finished(self, job: ShardJob) -> ShardResult | None:
        """The result of a shard whose files are there, or None."""
        try:
            result = ShardResult.model_validate_json((self.folders.results / f"{job.file}.json").read_bytes())
            if result.info is not None:
                path = self.folders.output / result.info.file
                sizes = (path.stat().st_size, index_of(path).stat().st_size)
                if sizes != (result.info.bytes, result.info.index_bytes):
                    return None
        except (OSError, ValueError):
            return None
        return result

    def forget(self, backend: BackendName) -> int:
        """Throw away the shards that a tokenizer library has made; returns their number."""
        forgotten = 0
        for path in self.folders.results.iterdir():
            try:
                doubted = ShardResult.model_validate_json(path.read_bytes()).backend == backend
            except (OSError, ValueError):
                doubted = True
            if doubted:
                path.unlink()
                forgotten += 1
        return forgotten

    def publish(self, manifest: Manifest, tokenizer: Path) -> None:
        """Complete the dataset and rename it to the output."""
        copy = self.folders.output / manifest.tokenizer.file
        write_atomic(copy, tokenizer.read_bytes())
        for entry in self.folders.output.iterdir():
            if entry.name not in dataset_files(manifest):
                entry.unlink()
        write_manifest(self.folders.output, manifest)
        self.rename()

    def rename(self) -> None:
        """Rename the complete folder to the output, in place of what is there; then remove the working folder."""
        if self.output.exists():
            shutil.rmtree(self._replaced, ignore_errors=True)
            os.rename(self.output, self._replaced)
        os.rename(self.folders.output, self.output)
        fsync(self.output.parent)
        self.remove()

    def remove_unless_other(self, identity: dict[str, Any]) -> None:
        """Remove the working folder unless it holds finished shards of another conversion."""
        if not self.has_results() or not _differences(json.loads(self._plan.read_text()), identity):
            self.remove()

    def remove(self) -> None:
        """Remove the working folder; the lock file goes last, as others may wait for it."""
        self._clear()
        self.lock_file.unlink(missing_ok=True)
        self.path.rmdir()

    def _clear(self) -> None:
        # The plan goes first: without it nothing else counts.
        self._plan.unlink(missing_ok=True)
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry != self.lock_file:
                entry.unlink()


def dataset_files(manifest: Manifest) -> set[str]:
    """Names of all files that belong in a dataset folder."""
    names = {MANIFEST_NAME, manifest.tokenizer.file}
    for shard in manifest.shards:
        names |= {shard.file, index_of(shard.file).name}
    return names


def hold_lock(lock_file: Path) -> int:
    """Take a worker's share of the driver's lock, for as long as the process lives.

    Raises:
        InputError: the driver has lost it.
    """
    descriptor = os.open(lock_file, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise InputError(Problem("is held by another process", lock_file)) from None
    return descriptor


def _lock_for_driver(folder: Path, lock_file: Path) -> int:
    """Take the lock alone, then share it, so that workers can hold it too.

    A new driver needs it alone, so it waits for the last worker of a killed one; the kernel frees a dead process's lock.
    """
    deadline = time.monotonic() + LOCK_WAIT_SECONDS
    while True:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o666)
        except FileNotFoundError:
            continue  # the one before has just removed the folder
        except OSError as error:
            raise InputError(Problem(f"cannot be written: {error.strerror}", folder)) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_same(descriptor, lock_file):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return descriptor
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return descriptor  # some parallel file systems have no locks
            if error.errno != errno.EWOULDBLOCK:
                raise
            if time.monotonic() > deadline:
                holder = os.pread(descriptor, 200, 0).decode(errors="replace") or "another process"
                os.close(descriptor)
                message = f"{holder} is converting into this output; wait for it, or choose another --output"
                raise InputError(Problem(message, folder)) from None
        os.close(descriptor)
        time.sleep(0.05)


def _is_same(descriptor: int, path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """What differs between two identities, in words."""
    found = []
    for group in ("options", "versions"):
        for key in sorted(old[group].keys() | new[group].keys()):
            before, after = old[group].get(key), new[group].get(key)
            if before != after:
                found.append(f"{key} was {before}, is {after}")
    if old["tokenizer"] != new["tokenizer"]:
        found.append("the tokenizer is another one")
    names = list(old["inputs"]), list(new["inputs"])
    changed = [name for name in names[1] if old["inputs"].get(name, new["inputs"][name]) != new["inputs"][name]]
    added = [name for name in names[1] if name not in old["inputs"]]
    gone = [name for name in names[0] if name not in new["inputs"]]
    for what, files in (("changed", changed), ("new", added), ("gone", gone)):
        if files:
            found.append(f"input files {what}: {', '.join(files[:3])}{' ...' if len(files) > 3 else ''} ({len(files)})")
    if not found and names[0] != names[1]:
        found.append("the inputs come in another order")
    return found
