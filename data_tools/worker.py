"""Worker processes: one shard after another, each with its own MindRecord writer, and the driver's side of them."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

from data_tools.shard import BackendWrong, OnError, ShardFolders, ShardJob, ShardResult, convert_shard
from data_tools.workdir import hold_lock
from msllm.data.backends import BackendName, BackendUnavailable
from msllm.data.manifest import ConvertOptions
from msllm.data.tokenizer import Tokenizer, load_tokenizer
from msllm.errors import InputError, MsllmError, RunError

REPORT_SECONDS = 0.2


_WHY = {
    signal.SIGKILL: "; the system kills processes when memory runs out: try fewer --workers",
    signal.SIGSEGV: "; MindRecord crashes where a write fails: look at the disk's free space and at quotas",
    signal.SIGBUS: "; a disk or a memory file system may be full",
}


def start_fork_server() -> None:
    """Start the process that workers are forked from; it imports what they need while the caller goes on.

    It must import our packages and not folders of their names.
    It runs with the current folder first in its search path; a clone of this project there, or any folder called
    `models`, would hide what is installed.
    """
    from multiprocessing import forkserver

    # Fork is unsafe with MindSpore's threads, spawn pays its import in every worker.
    forkserver.set_forkserver_preload(["data_tools.preload"])
    ours = str(Path(__file__).resolve().parents[1])
    given = os.environ.get("PYTHONPATH")
    changed = {"PYTHONSAFEPATH": "1", "PYTHONPATH": f"{ours}{os.pathsep}{given}" if given else ours}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@dataclass(frozen=True)
class WorkerSetup:
    """What every worker needs to know, the same for all."""

    tokenizer: Path
    tokenizer_type: Literal["sentencepiece", "huggingface"]
    backend: BackendName
    prepared: str
    """As in Choice."""
    options: ConvertOptions
    on_error: OnError
    folders: ShardFolders
    lock_file: Path


@dataclass(frozen=True)
class Advance:
    """Progress of a worker since its last message."""

    bytes: int
    tokens: int


class WorkerPool:
    """Runs shard jobs on processes; use it as a context manager, which leaves no process behind."""

    def __init__(self, setup: WorkerSetup, count: int):
        self._context = multiprocessing.get_context("forkserver")
        start_fork_server()
        self._setup = setup
        self._count = count
        self._workers: list[_Worker] = []

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all workers at once."""
        for worker in self._workers:
            worker.process.kill()
        for worker in self._workers:
            worker.process.join()

    def run(self, jobs: Sequence[ShardJob]) -> Iterator[Advance | ShardResult]:
        """Yield progress and results as they come, in no fixed order.

        Raises:
            InputError, RunError: what a worker met, or that a worker died.
        """
        waiting = list(reversed(jobs))
        for _ in range(min(self._count, len(jobs))):
            worker = _Worker(self._context, self._setup)
            self._workers.append(worker)
            worker.give(waiting.pop())
        busy = {worker.connection: worker for worker in self._workers}
        while busy:
            for connection in wait(list(busy)):
                worker = busy[connection]  # type: ignore[index]
                message = worker.receive()
                if isinstance(message, ShardResult):
                    if waiting:
                        worker.give(waiting.pop())
                    else:
                        del busy[worker.connection]
                yield message


class _Worker:
    """A process and the driver's end of its pipe."""

    def __init__(self, context: Any, setup: WorkerSetup):
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, setup), daemon=True)
        self.process.start()
        theirs.close()
        self._job: ShardJob | None = None

    def give(self, job: ShardJob) -> None:
        self._job = job
        try:
            self.connection.send(job)
        except OSError:
            raise self._died() from None

    def receive(self) -> Advance | ShardResult:
        try:
            message = self.connection.recv()
        except (EOFError, OSError):
            raise self._died() from None
        if isinstance(message, Failure):
            message.throw()
        return message

    def _died(self) -> RunError:
        self.process.join()
        code = self.process.exitcode or 0
        how, why = f"ended with exit code {code}", ""
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            why = _WHY.get(signal.Signals(-code), "")
        shard = f" at {self._job.file}" if self._job else ""
        return RunError(
            f"worker process {self.process.pid} {how}{shard}{why}. "
            f"Finished shards are kept: the same command goes on from them"
        )


@dataclass(frozen=True)
class Failure:
    """How a worker's job ended badly."""

    problems: tuple[Any, ...] = ()
    message: str = ""
    traceback: str = ""
    backend: BackendName | None = None
    """The one that gave wrong ids."""

    def throw(self, where: str = "") -> None:
        """Raise what it stands for; `where` names the machine."""
        if self.backend:
            raise BackendWrong(where + self.message, self.backend)
        if self.problems:
            raise InputError(self.problems)
        if self.message:
            raise RunError(where + self.message)
        raise RuntimeError(f"{where}in a worker process:\n{self.traceback}")


def attempt(
    job: ShardJob, setup: WorkerSetup, tokenizer: Callable[[], Tokenizer], progress: Callable[[int, int], None]
) -> ShardResult | Failure:
    """Make a shard; whatever goes wrong is a value, which travels between processes and machines."""
    try:
        return convert_shard(job, setup.options, setup.on_error, tokenizer(), setup.folders, progress)
    except InputError as error:
        return Failure(problems=error.problems)
    except BackendWrong as error:
        return Failure(message=str(error), backend=error.backend)
    except (MsllmError, BackendUnavailable) as error:
        return Failure(message=str(error))
    except OSError as error:
        full = ": free some space and run the same command again" if error.errno in (errno.ENOSPC, errno.EDQUOT) else ""
        return Failure(message=f"{error.filename or 'write'}: {error.strerror}{full}")
    except MemoryError:
        return Failure(message="out of memory: try fewer --workers; a .json array or line is read whole")
    except Exception:
        return Failure(traceback=traceback.format_exc())


def _work(connection: Connection, setup: WorkerSetup) -> None:
    """A worker's life: jobs in, progress and results out, until the driver is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to the driver, which ends its workers
    threading.Thread(target=_die_with_driver, daemon=True).start()
    loaded: list[Tokenizer] = []

    def tokenizer() -> Tokenizer:
        if not loaded:
            loaded.append(load_tokenizer(setup.tokenizer, setup.options.eod_token))
            loaded[0].use(setup.backend, setup.prepared)
        return loaded[0]

    try:
        hold_lock(setup.lock_file)
        while True:
            job = connection.recv()
            meter = _Meter(connection)
            outcome = attempt(job, setup, tokenizer, meter.add)
            meter.flush()
            connection.send(outcome)
            if isinstance(outcome, Failure):
                return
    except EOFError:
        return
    except InputError as error:
        connection.send(Failure(problems=error.problems))


def _die_with_driver() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)


class _Meter:
    """Adds up progress and sends it a few times a second."""

    def __init__(self, connection: Connection):
        self._connection = connection
        self._bytes = self._tokens = 0
        self._next = 0.0

    def add(self, count: int, tokens: int) -> None:
        self._bytes += count
        self._tokens += tokens
        now = time.monotonic()
        if now >= self._next:
            self._next = now + REPORT_SECONDS
            self.flush()

    def flush(self) -> None:
        self._connection.send(Advance(self._bytes, self._tokens))
        self._bytes = self._tokens = 0
