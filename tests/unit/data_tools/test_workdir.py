from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from data_tools import workdir
from data_tools.convert import convert
from data_tools.plan import ConvertRequest
from data_tools.workdir import WorkDirectory, hold_lock
from msllm.data.manifest import read_manifest
from msllm.errors import InputError

IDENTITY: dict[str, Any] = {
    "options": {"seq_length": 8},
    "tokenizer": {"fingerprint": "0"},
    "versions": {"msllm": "0.1.0"},
    "inputs": {"/a.txt": [1, 2], "/b.txt": [3, 4]},
}


@pytest.fixture
def request_of(tmp_path: Path, tokenizer_file: Path, documents: list[str]) -> Callable[..., ConvertRequest]:
    """A conversion into 3 shards."""
    source = tmp_path / "a.jsonl"
    source.write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))

    def request_of(**options: Any) -> ConvertRequest:
        return ConvertRequest([source], tokenizer_file, 32, tmp_path / "out", **({"shards": 3, "workers": 1} | options))

    return request_of


@pytest.fixture
def unfinished(request_of: Callable[..., ConvertRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a conversion that was stopped when all shards were there."""
    with monkeypatch.context() as patch:

        def stop(self: WorkDirectory, *arguments: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(WorkDirectory, "publish", stop)
        with pytest.raises(KeyboardInterrupt):
            convert(request_of(), quiet=True)
    return tmp_path / "out.partial"


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def finish(request: ConvertRequest) -> int:
    """Convert; how many shards were taken over. The output must equal that of a run without interruption."""
    summary = convert(request, quiet=True)
    clean = request.output.with_name("clean")
    convert(ConvertRequest(**{**vars(request), "output": clean, "restart": False, "overwrite": False}), quiet=True)
    assert files(request.output) == files(clean)
    assert not (request.output.parent / "out.partial").exists()
    return summary.resumed_shards


def test_finished_shards_are_taken_over(unfinished: Path, request_of: Callable[..., ConvertRequest]) -> None:
    assert finish(request_of()) == 3


def test_shard_without_its_mark_is_made_again(unfinished: Path, request_of: Callable[..., ConvertRequest]) -> None:
    (unfinished / "results" / "shard-00001.mindrecord.json").unlink()
    assert finish(request_of()) == 2


@pytest.mark.parametrize("name", ["shard-00002.mindrecord", "shard-00002.mindrecord.db"])
def test_shard_that_lost_a_file_or_part_of_it_is_made_again(
    unfinished: Path, request_of: Callable[..., ConvertRequest], name: str
) -> None:
    path = unfinished / "output" / name
    path.write_bytes(path.read_bytes()[:-1])
    assert finish(request_of()) == 2


def test_damaged_mark_counts_for_nothing(unfinished: Path, request_of: Callable[..., ConvertRequest]) -> None:
    (unfinished / "results" / "shard-00000.mindrecord.json").write_text("{")
    assert finish(request_of()) == 2


def test_killed_after_the_manifest_was_written(
    unfinished: Path, request_of: Callable[..., ConvertRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(old: Any, new: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(workdir.os, "rename", die)
        with pytest.raises(KeyboardInterrupt):
            convert(request_of(), quiet=True)
    assert (unfinished / "output" / "manifest.json").exists()
    assert finish(request_of()) == 3


def test_killed_between_the_two_renames_of_an_overwrite(
    tmp_path: Path, request_of: Callable[..., ConvertRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(request_of(shards=1), quiet=True)
    old = files(tmp_path / "out")
    rename, calls = os.rename, []

    def die_at_the_second(source: Any, target: Any) -> None:
        calls.append(target)
        if len(calls) == 2:
            raise KeyboardInterrupt
        rename(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(workdir.os, "rename", die_at_the_second)
        with pytest.raises(KeyboardInterrupt):
            convert(request_of(overwrite=True), quiet=True)
    assert not (tmp_path / "out").exists()
    with WorkDirectory(tmp_path / "out"):
        assert files(tmp_path / "out") == old  # whatever comes next, the old dataset is not lost
    assert finish(request_of(overwrite=True)) == 3


def test_killed_after_the_output_was_renamed(
    tmp_path: Path, request_of: Callable[..., ConvertRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(WorkDirectory, "remove", lambda self: None)
        convert(request_of(), quiet=True)
    assert (tmp_path / "out.partial" / "plan.json").exists()
    assert convert(request_of(), quiet=True).reused
    assert not (tmp_path / "out.partial").exists()


def test_other_options_or_input_are_refused_and_restart_helps(
    unfinished: Path, request_of: Callable[..., ConvertRequest], tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=r"shards was 3, is 2.*--restart"):
        convert(request_of(shards=2), quiet=True)
    os.utime(tmp_path / "a.jsonl", ns=(1, 1))
    with pytest.raises(InputError, match=r"input files changed: .*a\.jsonl \(1\).*--restart"):
        convert(request_of(), quiet=True)
    assert finish(request_of(restart=True)) == 0


def test_unfinished_conversion_without_a_finished_shard_is_no_obstacle(
    tmp_path: Path, request_of: Callable[..., ConvertRequest]
) -> None:
    with WorkDirectory(tmp_path / "out") as work:
        work.start(IDENTITY, restart=False)
    assert finish(request_of()) == 0


def test_reader_of_an_unfinished_output_is_told(unfinished: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="conversion not finished"):
        read_manifest(tmp_path / "out")


def test_unfinished_conversion_of_another_kind_survives_reuse(
    tmp_path: Path, request_of: Callable[..., ConvertRequest], monkeypatch: pytest.MonkeyPatch
) -> None:
    convert(request_of(), quiet=True)
    with monkeypatch.context() as patch:
        patch.setattr(workdir.os, "rename", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            convert(request_of(shards=2, overwrite=True), quiet=True)
    assert convert(request_of(), quiet=True).reused
    assert (tmp_path / "out.partial" / "results").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"options": {"seq_length": 16}}, "seq_length was 8, is 16"),
        ({"versions": {"msllm": "0.2.0"}}, "msllm was 0.1.0, is 0.2.0"),
        ({"tokenizer": {"fingerprint": "1"}}, "the tokenizer is another one"),
        ({"inputs": {"/a.txt": [1, 9], "/b.txt": [3, 4]}}, r"input files changed: /a\.txt \(1\)"),
        ({"inputs": {"/a.txt": [1, 2]}}, r"input files gone: /b\.txt \(1\)"),
        ({"inputs": {"/a.txt": [1, 2], "/b.txt": [3, 4], "/c.txt": [0, 0]}}, r"input files new: /c\.txt \(1\)"),
        ({"inputs": {"/b.txt": [3, 4], "/a.txt": [1, 2]}}, "another order"),
    ],
)
def test_every_difference_is_put_into_words(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with WorkDirectory(tmp_path / "out") as work:
        work.start(IDENTITY, restart=False)
        (work.folders.results / "x.json").write_text("{}")
        work.start(json.loads(json.dumps(IDENTITY)), restart=False)
        with pytest.raises(InputError, match=message):
            work.start(IDENTITY | change, restart=False)


def test_second_driver_is_refused_while_the_first_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workdir, "LOCK_WAIT_SECONDS", 0.2)
    message = rf"process {os.getpid()} on .* is converting into this output"
    with WorkDirectory(tmp_path / "out"), pytest.raises(InputError, match=message):
        WorkDirectory(tmp_path / "out").__enter__()
    with WorkDirectory(tmp_path / "out"):
        pass


def _hold(lock_file: Path, ready: Any) -> None:
    hold_lock(lock_file)
    ready.send(True)
    ready.recv()


def test_worker_of_a_dead_driver_keeps_the_lock_until_it_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workdir, "LOCK_WAIT_SECONDS", 0.2)
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with WorkDirectory(tmp_path / "out") as work:
        worker = context.Process(target=_hold, args=(work.lock_file, theirs))
        worker.start()
        assert ours.recv()
    with pytest.raises(InputError, match="is converting into this output"):
        WorkDirectory(tmp_path / "out").__enter__()
    worker.kill()
    worker.join()
    with WorkDirectory(tmp_path / "out"):
        pass


def test_file_system_without_locks_is_used_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with WorkDirectory(tmp_path / "out") as work:
        os.close(hold_lock(work.lock_file))
