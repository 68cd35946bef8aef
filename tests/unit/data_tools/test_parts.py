"""A conversion in parts, merged."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from corpora import content, write_jsonl

from data_tools import convert as converting
from data_tools.convert import convert_part
from data_tools.parts import PART_NAME, merge, part_folder, read_part
from data_tools.plan import ConvertRequest
from data_tools.verify import verify
from msllm.errors import InputError

SHARDS = 5
Part = Callable[..., Path]


@pytest.fixture
def part(tmp_path: Path, tokenizer_file: Path, documents: list[str]) -> Part:
    """Make a part of a conversion of 5 shards; returns its folder."""
    source = write_jsonl(tmp_path / "a.jsonl", documents)

    def part(number: int, of: int = 2, output: str = "out", **options) -> Path:
        options = {"seq_length": 32, "shards": SHARDS, "workers": 1, "tokenizer": tokenizer_file} | options
        request = ConvertRequest([source], output=tmp_path / output, num_parts=of, part=number, **options)
        return convert_part(request, quiet=True).folder

    return part


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path, documents: list[str]) -> Path:
    """A folder with both parts of `out`, and `whole`, what one process makes."""
    folder = tmp_path_factory.mktemp("parts")
    source = write_jsonl(folder / "a.jsonl", documents)
    options = {"seq_length": 32, "shards": SHARDS, "workers": 1, "tokenizer": tokenizer_file, "inputs": [source]}
    converting.convert(ConvertRequest(output=folder / "whole", **options), quiet=True)
    for number in (1, 2):
        convert_part(ConvertRequest(output=folder / "out", num_parts=2, part=number, **options), quiet=True)
    return folder


@pytest.fixture
def folder(parts: Path, tmp_path: Path) -> Path:
    """A copy of it that may be changed."""
    return Path(shutil.copytree(parts, tmp_path / "copy"))


def test_merged_parts_are_what_one_process_makes_and_stay_as_they_were(folder: Path) -> None:
    before = content(part_folder(folder / "out", 1, 2))
    summary = merge(folder / "out")
    assert content(folder / "out") == content(folder / "whole")
    assert (summary.parts, summary.reused) == (2, False) and verify(folder / "out", deep=True).damages == ()
    assert content(part_folder(folder / "out", 1, 2)) == before
    assert merge(folder / "out").reused
    assert not (folder / "out.partial").exists()


def test_parts_may_lie_anywhere_and_on_another_file_system(folder: Path, monkeypatch) -> None:
    moved = [part_folder(folder / "out", number, 2).rename(folder / f"elsewhere {number}") for number in (2, 1)]

    def refuse(source: Path, target: Path) -> None:
        raise OSError(errno.EXDEV, "another file system")

    monkeypatch.setattr(os, "link", refuse)
    merge(folder / "out", moved)
    assert content(folder / "out") == content(folder / "whole")


def test_a_merge_that_was_interrupted_is_run_again(folder: Path, monkeypatch) -> None:
    links = iter(range(3))

    def interrupted(source: Path, target: Path, link=os.link) -> None:
        if next(links, None) is None:
            raise KeyboardInterrupt
        link(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", interrupted)
        with pytest.raises(KeyboardInterrupt):
            merge(folder / "out")
    assert not (folder / "out").exists()
    merge(folder / "out")
    assert content(folder / "out") == content(folder / "whole")


def test_a_part_is_made_once_and_goes_on_after_an_interruption(part: Part, monkeypatch) -> None:
    honest = converting.WorkerPool.run

    def interrupted(pool, jobs):
        yield next(event for event in honest(pool, jobs) if not isinstance(event, converting.Advance))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(converting.WorkerPool, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            part(1)
    folder = part(1)
    made = (folder / PART_NAME).stat().st_mtime_ns
    assert [result.number for result in read_part(folder).results] == [0, 2, 4]
    assert part(1) == folder and (folder / PART_NAME).stat().st_mtime_ns == made


def test_a_part_of_something_else_is_not_replaced_unless_asked(part: Part) -> None:
    folder = part(1)
    with pytest.raises(InputError, match="is a part of another conversion, or its input has changed"):
        part(1, seq_length=16)
    assert part(1, seq_length=16, overwrite=True) == folder
    assert read_part(folder).recipe.options.seq_length == 16


def test_a_lost_file_of_a_part_is_noticed(folder: Path) -> None:
    one, two = (part_folder(folder / "out", number, 2) for number in (1, 2))
    os.truncate(one / "shard-00002.mindrecord", 5)
    (two / "shard-00003.mindrecord.db").unlink()
    with pytest.raises(InputError) as error:
        merge(folder / "out")
    assert f"{one}: lacks files, or they are cut: shard-00002.mindrecord;" in str(error.value)
    assert f"{two}: lacks files, or they are cut: shard-00003.mindrecord.db;" in str(error.value)


def test_what_is_no_whole_is_refused_with_all_reasons(folder: Path, part: Part, tmp_path: Path) -> None:
    one = part_folder(folder / "out", 1, 2)
    other = part(2, seq_length=16)
    with pytest.raises(InputError) as error:
        merge(folder / "out", [one, one, other, folder])
    text = str(error.value)
    assert f"{other}: is of another conversion than {one}: recipe differ" in text
    assert "part 1 is given 2 times" in text and f"{folder}: is no part of a conversion" in text
    shutil.rmtree(part_folder(folder / "out", 2, 2))
    with pytest.raises(InputError, match="parts missing of 2: 2; run them with --part"):
        merge(folder / "out")
    with pytest.raises(InputError, match="has no parts beside it"):
        merge(tmp_path / "nothing")


def test_an_output_that_differs_is_replaced_only_on_demand(folder: Path, part: Part, tmp_path: Path) -> None:
    part(1, seq_length=16)
    part(2, seq_length=16)
    shutil.copytree(folder / "whole", tmp_path / "out")
    with pytest.raises(InputError, match="is a dataset that differs"):
        merge(tmp_path / "out")
    assert merge(tmp_path / "out", overwrite=True).manifest.seq_length == 16


@pytest.mark.parametrize(
    ("number", "of", "said"),
    [(3, 2, r"--part \(3\) must be between 1 and --num-parts \(2\)"), (1, 6, "must be at most the number of shards")],
)
def test_impossible_parts(part: Part, number: int, of: int, said: str) -> None:
    with pytest.raises(InputError, match=said):
        part(number, of)


def test_parts_are_no_input_where_they_lie_beside_it(
    tmp_path: Path, tokenizer_file: Path, documents: list[str]
) -> None:
    write_jsonl(tmp_path / "in" / "a.jsonl", documents)
    for number in (1, 2):
        request = ConvertRequest(
            [tmp_path / "in"], tokenizer_file, 32, tmp_path / "in" / "out", shards=2, num_parts=2, part=number
        )
        folder = convert_part(request, quiet=True).folder
    assert [file.name for file in read_part(folder).inputs] == ["in/a.jsonl"]
