"""Shards on a Dask cluster: the bytes of one process, whatever happens to the workers."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from corpora import content, write_jsonl

from data_tools import cluster
from data_tools.convert import ConvertSummary
from data_tools.worker import Advance
from msllm.errors import InputError, RunError

distributed = pytest.importorskip("distributed")
Convert = Callable[..., ConvertSummary]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A cluster of two workers, each a process."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as local:
        yield local.scheduler_address


@pytest.fixture
def source(tmp_path: Path, documents: list[str]) -> Path:
    return write_jsonl(tmp_path / "a.jsonl", documents)


def test_a_cluster_gives_the_bytes_of_one_process(address: str, source: Path, run: Convert, tmp_path: Path) -> None:
    here = run([source], shards=4, output=tmp_path / "here")
    there = run([source], shards=4, output=tmp_path / "there", workers=None, dask=address)
    assert content(here.output) == content(there.output) and not (tmp_path / "there.partial").exists()


def test_a_dead_workers_shard_is_made_again(
    address: str, run: Convert, tmp_path: Path, documents: list[str], monkeypatch
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents * 20)
    honest = cluster.DaskPool.run

    def murderous(pool: cluster.DaskPool, jobs):
        workers = list(pool._client.run(os.getpid).values())
        events = honest(pool, jobs)
        yield next(events)
        os.kill(workers[0], signal.SIGKILL)
        yield from events

    monkeypatch.setattr(cluster.DaskPool, "run", murderous)
    there = run([source], shards=8, output=tmp_path / "there", workers=None, dask=address)
    monkeypatch.undo()
    here = run([source], shards=8, output=tmp_path / "here")
    assert content(here.output) == content(there.output)


def test_an_interrupted_driver_goes_on_from_the_shards_that_are_finished(
    address: str, source: Path, run: Convert, tmp_path: Path, monkeypatch
) -> None:
    honest = cluster.DaskPool.run

    def interrupted(pool: cluster.DaskPool, jobs):
        yield next(event for event in honest(pool, jobs) if not isinstance(event, Advance))
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster.DaskPool, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run([source], shards=4, workers=None, dask=address)
    monkeypatch.undo()
    end = run([source], shards=4)
    assert end.resumed_shards >= 1
    shutil.move(end.output, tmp_path / "first")
    assert content(tmp_path / "first") == content(run([source], shards=4).output)


def test_what_a_task_meets_is_told_as_on_one_machine(
    address: str, run: Convert, tmp_path: Path, documents: list[str]
) -> None:
    source = write_jsonl(tmp_path / "bad.jsonl", [*documents, " "])
    with pytest.raises(InputError, match=r"bad\.jsonl:201: empty document"):
        run([source], shards=2, workers=None, dask=address)


def test_a_worker_with_other_versions_is_named(
    address: str, source: Path, run: Convert, tmp_path: Path, monkeypatch
) -> None:
    honest = cluster.package_versions
    monkeypatch.setattr(cluster, "package_versions", lambda kind: {**honest(kind), "mindspore": "1.0"})
    with pytest.raises(RunError, match=r"on .*: other versions than the driver's: mindspore .* instead of 1\.0"):
        run([source], shards=2, workers=None, dask=address)


def test_a_scheduler_that_is_not_there_and_workers_of_this_machine_are_the_users_mistakes(
    source: Path, run: Convert, monkeypatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_SECONDS", 0.2)
    with pytest.raises(InputError, match="no Dask scheduler answers there"):
        run([source], workers=None, dask="tcp://127.0.0.1:9")
    with pytest.raises(InputError, match="--workers is for this machine"):
        run([source], workers=2, dask="tcp://127.0.0.1:9")
