"""Workers: one shard after another, and how the driver hears of what goes wrong in them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from corpora import write_jsonl

from data_tools.plan import ConvertRequest, Plan, make_plan
from data_tools.shard import ShardFolders, ShardResult
from data_tools.worker import Advance, WorkerPool, WorkerSetup
from msllm.errors import InputError, RunError

Start = Callable[..., tuple[Plan, WorkerPool]]


@pytest.fixture
def start(tmp_path: Path, tokenizer_file: Path) -> Start:
    """A plan of 3 shards and workers for it."""

    def start(documents: list[str], count: int = 2) -> tuple[Plan, WorkerPool]:
        source = write_jsonl(tmp_path / "a.jsonl", documents)
        plan = make_plan(ConvertRequest([source], tokenizer_file, 8, tmp_path / "out", shards=3))
        folders = ShardFolders(tmp_path / "output", tmp_path / "results", tmp_path / "temporary")
        for path in (folders.output, folders.results, folders.temporary):
            path.mkdir()
        lock = tmp_path / "lock"
        lock.touch()
        return plan, WorkerPool(
            WorkerSetup(tokenizer_file, "sentencepiece", "reference", "", plan.options, "fail", folders, lock), count
        )

    return start


def test_every_job_gives_a_result_and_the_progress_adds_up(start: Start, documents: list[str]) -> None:
    plan, pool = start(documents)
    with pool:
        messages = list(pool.run(plan.jobs))
    results = [message for message in messages if isinstance(message, ShardResult)]
    assert sorted(result.number for result in results) == [0, 1, 2]
    steps = [message for message in messages if isinstance(message, Advance)]
    assert sum(step.bytes for step in steps) == plan.inputs.size
    assert sum(step.tokens for step in steps) == sum(result.tokens for result in results)
    assert not any(worker.process.is_alive() for worker in pool._workers)


def test_a_users_mistake_in_a_worker_is_one_in_the_driver(start: Start, tmp_path: Path) -> None:
    plan, pool = start(["a text", " "])
    with pool, pytest.raises(InputError, match=r"a\.jsonl:2: empty document"):
        list(pool.run(plan.jobs))


def test_a_worker_that_is_killed_is_named_with_its_shard(start: Start, documents: list[str]) -> None:
    plan, pool = start(documents * 20, count=1)
    with pool, pytest.raises(RunError) as error:
        for _ in pool.run(plan.jobs):
            os.kill(pool._workers[0].process.pid or 0, signal.SIGKILL)
    said = str(error.value)
    assert "was killed by SIGKILL at shard-0000" in said and "try fewer --workers" in said
    assert "the same command goes on from them" in said
