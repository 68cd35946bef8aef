"""Files and folders are whole or absent, and what a killed process left of them goes with the next write."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from msllm.files import new_directory, remove_leftovers, sha256_of, write_atomic

KILLED = """
import os, sys
sys.addaudithook(lambda event, arguments: os._exit(9) if event == "os.rename" else None)
from pathlib import Path
from msllm.files import new_directory, write_atomic
path = Path(sys.argv[2])
if sys.argv[1] == "file":
    write_atomic(path, "half")
with new_directory(path) as folder:
    (folder / "a").write_text("half")
"""
NAMES = ["plain", "with space", "早 [1] {x} *?"]


def write(kind: str, path: Path) -> None:
    if kind == "file":
        write_atomic(path, "whole")
        return
    with new_directory(path) as folder:
        (folder / "a").write_text("whole")


def killed(kind: str, path: Path) -> Path:
    """What a process leaves that is killed before the rename."""
    assert subprocess.run([sys.executable, "-c", KILLED, kind, str(path)]).returncode == 9
    (left,) = path.parent.iterdir()
    assert left.name.startswith(f".{path.name}.tmp-") and not path.exists()
    return left


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_goes_with_the_next_write(tmp_path: Path, kind: str, name: str):
    killed(kind, tmp_path / name)
    write(kind, tmp_path / name)
    assert names(tmp_path) == {name}
    assert (tmp_path / name if kind == "file" else tmp_path / name / "a").read_text() == "whole"


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_others_are_writing_is_left_alone(tmp_path: Path, kind: str):
    left = killed(kind, tmp_path / "a")
    stem = left.name.rsplit("-", 1)[0]
    living = left.rename(tmp_path / f"{stem}-{os.getppid()}")
    elsewhere = tmp_path / ".a.tmp-another-server-999999999"
    neighbour = tmp_path / left.name.replace(".a.", ".ab.")
    for other in (elsewhere, neighbour):
        other.mkdir()
    write(kind, tmp_path / "a")
    assert names(tmp_path) == {"a", living.name, elsewhere.name, neighbour.name}
    remove_leftovers(tmp_path)  # for a folder that one run alone writes, on whichever machine it did so before
    assert names(tmp_path) == {"a", living.name}


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_write_that_fails_leaves_nothing_and_the_old_file(tmp_path: Path, kind: str, monkeypatch):
    if kind == "file":
        (tmp_path / "a").write_text("old")
    before = names(tmp_path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("msllm.files.os.fsync", fail)
    with pytest.raises(OSError, match="No space left"):
        write(kind, tmp_path / "a")
    assert names(tmp_path) == before
    assert kind == "folder" or (tmp_path / "a").read_text() == "old"


def test_the_checksum_is_that_of_the_bytes(tmp_path: Path):
    write_atomic(tmp_path / "a", b"abc")
    assert sha256_of(tmp_path / "a") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
