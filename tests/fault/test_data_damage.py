"""Datasets that lost or changed bytes: `verify` finds every one."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from data_tools.convert import convert
from data_tools.plan import ConvertRequest
from data_tools.verify import verify

pytestmark = pytest.mark.fault

SEED = os.getpid()


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path, documents: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("damage")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    convert(ConvertRequest([folder / "a.jsonl"], tokenizer_file, 32, folder / "set", shards=2, workers=1), quiet=True)
    return folder / "set"


@pytest.fixture(params=["manifest.json", "tokenizer.model", "shard-00001.mindrecord", "shard-00000.mindrecord.db"])
def file(request: pytest.FixtureRequest, dataset: Path) -> Iterator[Path]:
    """One file of the dataset, mended afterwards."""
    path = dataset / request.param
    whole = path.read_bytes()
    yield path
    path.write_bytes(whole)
    assert verify(dataset).damages == ()


def used(path: Path) -> int:
    """Length of the part of a file that holds something; MindRecord leaves large holes."""
    return len(path.read_bytes().rstrip(b"\0"))


def test_one_flipped_bit_anywhere(dataset: Path, file: Path) -> None:
    draw = random.Random(SEED)
    whole = file.read_bytes()
    for limit in [used(file)] * 10 + [len(whole)] * 5:
        place, bit = draw.randrange(limit), draw.randrange(8)
        with open(file, "r+b") as stream:
            stream.seek(place)
            stream.write(bytes([whole[place] ^ 1 << bit]))
        (damage,) = verify(dataset).damages
        assert damage.file == file.name and damage.kind in ("changed", "manifest"), (SEED, place, bit)
        file.write_bytes(whole)


def test_file_cut_anywhere(dataset: Path, file: Path) -> None:
    draw = random.Random(SEED)
    whole = file.read_bytes()
    for length in [0, len(whole) - 1, *(draw.randrange(len(whole)) for _ in range(6))]:
        file.write_bytes(whole[:length])
        (damage,) = verify(dataset).damages
        assert damage.file == file.name, (SEED, length)
        assert damage.kind == (
            "manifest" if file.name == "manifest.json" else "changed" if "model" in file.name else "cut"
        )


def test_file_with_something_behind_it(dataset: Path, file: Path) -> None:
    with open(file, "ab") as stream:
        stream.write(b" ")
    (damage,) = verify(dataset).damages
    assert damage.file == file.name and damage.kind in ("longer", "manifest", "changed")


def test_several_damages_are_all_named(dataset: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(dataset, tmp_path / "set"))
    (folder / "shard-00000.mindrecord").unlink()
    os.truncate(folder / "shard-00001.mindrecord", 5000)
    (folder / "shard-00002.mindrecord").write_bytes(b"stale")
    kinds = {damage.file: damage.kind for damage in verify(folder).damages}
    assert kinds == {
        "shard-00000.mindrecord": "missing",
        "shard-00001.mindrecord": "cut",
        "shard-00002.mindrecord": "stale",
    }
