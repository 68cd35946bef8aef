"""Shards made on the workers of a Dask cluster, for corpora that outgrow one machine.

Every worker sees the input, the tokenizer and the output folder under the same paths (a shared file system). A shard is a
task; when its worker dies, the scheduler gives it to another one. Only the driver publishes, so a task that outlives its
driver leaves at most a finished shard, which has the same bytes whoever made it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from data_tools.plan import package_versions
from data_tools.shard import ShardJob, ShardResult
from data_tools.worker import Advance, Failure, WorkerSetup, attempt
from msllm.data.tokenizer import Tokenizer, load_tokenizer
from msllm.errors import InputError, RunError

CONNECT_SECONDS = 20
_one_shard = threading.Lock()
_loaded: dict[WorkerSetup, Tokenizer] = {}


@dataclass(frozen=True)
class _Done:
    """What a task gives."""

    outcome: ShardResult | Failure
    worker: str


class DaskPool:
    """Runs shard jobs on a Dask cluster; the counterpart of `WorkerPool`.

    Raises:
        InputError: Dask is not installed, no scheduler answers, or it has no workers.
    """

    def __init__(self, setup: WorkerSetup, address: str):
        try:
            from distributed import Client
        except ImportError:
            raise InputError("--dask needs Dask: pip install 'msllm[dask]'") from None
        # Prepared by every worker once: a task for every shard carries it otherwise.
        self._setup = replace(setup, prepared="")
        try:
            self._client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError) as error:
            raise InputError(f"--dask {address}: no Dask scheduler answers there: {error}") from None
        self._futures: list[Any] = []
        if not self._client.scheduler_info()["workers"]:
            self._client.close()
            raise InputError(f"--dask {address}: the scheduler has no workers; start some with `dask worker {address}`")

    def __enter__(self) -> DaskPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self._client.close()

    def stop(self) -> None:
        """Let no further task begin, and wait for none."""
        self._client.cancel(self._futures, force=True)

    def run(self, jobs: Sequence[ShardJob]) -> Iterator[Advance | ShardResult]:
        """Yield progress and results as they come, in no fixed order.

        Raises:
            InputError, RunError: what a task met, or that a shard has lost several workers.
        """
        from distributed import KilledWorker, as_completed

        run = uuid.uuid4().hex[:8]
        versions = package_versions(self._setup.tokenizer_type)
        futures = {}
        for job in jobs:
            key = f"{job.file}-{run}"
            futures[self._client.submit(_task, job, self._setup, versions, key=key, pure=False)] = job
        self._futures = list(futures)
        for future in as_completed(self._futures, loop=self._client.loop):
            job = futures[future]
            try:
                done = future.result()
            except KilledWorker as error:
                raise RunError(
                    f"{job.file}: the workers that made it were lost, {error.last_worker.address} last; look at their logs "
                    f"and memory. Finished shards are kept: the same command goes on from them"
                ) from None
            if isinstance(done.outcome, Failure):
                done.outcome.throw(f"on {done.worker}: ")
            yield Advance(sum(unit.end - unit.start for unit in job.units), done.outcome.tokens)
            yield done.outcome


def _task(job: ShardJob, setup: WorkerSetup, versions: dict[str, str]) -> _Done:
    """Make a shard on a worker, one at a time in each of its processes."""
    import socket

    here = package_versions(setup.tokenizer_type)
    if here != versions:
        different = ", ".join(
            f"{name} {here[name]} instead of {versions[name]}" for name in here if here[name] != versions[name]
        )
        return _Done(Failure(message=f"other versions than the driver's: {different}"), socket.gethostname())
    with _one_shard:
        # A folder of its own: a task that was given up may still be writing on the worker that was lost to the scheduler.
        folders = replace(setup.folders, temporary=setup.folders.temporary / uuid.uuid4().hex[:8])
        if not setup.folders.results.is_dir():
            message = (
                f"{setup.folders.results}: not seen here; the output must lie on a file system that all workers share"
            )
            return _Done(Failure(message=message), socket.gethostname())
        outcome = attempt(job, replace(setup, folders=folders), lambda: _tokenizer(setup), lambda count, tokens: None)
    return _Done(outcome, socket.gethostname())


def _tokenizer(setup: WorkerSetup) -> Tokenizer:
    """Loaded once in each process."""
    if setup not in _loaded:
        _loaded.clear()
        tokenizer = load_tokenizer(setup.tokenizer, setup.options.eod_token)
        tokenizer.use(setup.backend)
        _loaded[setup] = tokenizer
    return _loaded[setup]
