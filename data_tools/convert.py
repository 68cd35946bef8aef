"""`msllm data convert`: text files become a dataset folder of MindRecord files.

The plan divides the input into shards; worker processes make one shard each, from bytes to a finished file, and nothing
passes through the driver. What is finished stays finished when the conversion is interrupted. When all shards are there,
the manifest is written and the folder renamed to the output.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_tools.assemble import assemble, too_small
from data_tools.cluster import DaskPool
from data_tools.gate import Choice, choose_backend
from data_tools.parts import InputFile, Part, finished_part, part_folder, publish_part
from data_tools.plan import ConvertRequest, Plan, make_plan
from data_tools.progress import Progress
from data_tools.reuse import finished_output, refuse_foreign_output
from data_tools.shard import SHOWN_FAULTS, BackendWrong, ShardJob, ShardResult, unusable
from data_tools.words import counted
from data_tools.workdir import WorkDirectory
from data_tools.worker import Advance, WorkerPool, WorkerSetup, start_fork_server
from msllm.data.manifest import Manifest
from msllm.errors import InputError, RunError


@dataclass(frozen=True)
class ConvertSummary:
    """What a conversion did."""

    manifest: Manifest
    output: Path
    reused: bool
    """The output was there already, made from the same input in the same way."""
    resumed_shards: int
    """Shards that an interrupted conversion had finished."""
    input_bytes: int
    input_files: int
    ignored: tuple[tuple[str, str], ...]
    """(file, reason) of files that were left out."""
    notices: dict[str, int]
    tokenized: Choice | None
    """How the tokenizer's library was chosen; None where nothing was left to tokenize."""
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        manifest = self.manifest
        names = ("seq_length", "rows", "tokens", "documents", "padding_tokens", "dropped_tokens", "skipped")
        return {
            "output": str(self.output),
            "reused": self.reused,
            "resumed_shards": self.resumed_shards,
            "shards": len(manifest.shards),
            **{name: getattr(manifest, name) for name in names},
            "input_files": self.input_files,
            "input_bytes": self.input_bytes,
            "ignored": [{"file": file, "reason": reason} for file, reason in self.ignored],
            "notices": self.notices,
            "tokenizer_backend": self.tokenized and self.tokenized.backend,
            "tokenizer_backend_documents_compared": self.tokenized.documents if self.tokenized else 0,
            "tokenizer_backends_passed_over": list(self.tokenized.passed_over) if self.tokenized else [],
            "seconds": round(self.seconds, 3),
        }


@dataclass(frozen=True)
class PartSummary:
    """What the conversion of one part did."""

    part: Part
    folder: Path
    reused: bool
    resumed_shards: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """For `--json`."""
        results = self.part.results
        return {
            "part_folder": str(self.folder),
            "part": self.part.part,
            "num_parts": self.part.num_parts,
            "reused": self.reused,
            "resumed_shards": self.resumed_shards,
            "shards": len(results),
            "documents": sum(result.documents for result in results),
            "tokens": sum(result.tokens for result in results),
            "seconds": round(self.seconds, 3),
        }


def convert(request: ConvertRequest, quiet: bool = False) -> ConvertSummary:
    """Convert a corpus, continue an interrupted conversion, or find that it is done.

    Starts processes, so a script that calls it needs the usual `if __name__ == "__main__":`.

    Raises:
        InputError: wrong arguments, input that cannot be used, an output that belongs to something else.
        RunError: the disk is full, a worker died. Finished shards are kept, as they are after Ctrl-C.
    """
    start = time.monotonic()
    plan = make_plan(request)
    refuse_foreign_output(request.output)
    with WorkDirectory(request.output) as work, _no_empty_rest(work):
        manifest = finished_output(plan, request)
        if manifest is not None:
            work.remove_unless_other(plan.identity())
            return _summary(plan, work, manifest, time.monotonic() - start, reused=True)
        made = _make(plan, request, work, quiet)
        if said := too_small(plan.recipe, made.results):
            work.remove()
            raise InputError(said)
        manifest = assemble(plan.recipe, made.results)
        work.publish(manifest, plan.tokenizer.path)
    return _summary(plan, work, manifest, time.monotonic() - start, made=made)


def convert_part(request: ConvertRequest, quiet: bool = False) -> PartSummary:
    """Make one part of a conversion, `request.part` of `request.num_parts`; `parts.merge` makes a dataset of all.

    Raises:
        InputError, RunError: as `convert`.
    """
    start = time.monotonic()
    plan = make_plan(request)
    assert request.part is not None and request.num_parts is not None
    folder = part_folder(request.output, request.part, request.num_parts)
    inputs = tuple(InputFile(name=s.name, size=s.size, mtime_ns=s.mtime_ns) for s in plan.inputs.sources)
    part = Part(part=request.part, num_parts=request.num_parts, recipe=plan.recipe, inputs=inputs, results=())
    with WorkDirectory(folder) as work, _no_empty_rest(work):
        if found := finished_part(folder, part, request.overwrite):
            work.remove_unless_other(plan.identity())
            return PartSummary(found, folder, True, 0, time.monotonic() - start)
        made = _make(plan, request, work, quiet)
        part = part.model_copy(update={"results": tuple(made.results)})
        publish_part(work, part, plan.tokenizer.path)
    return PartSummary(part, folder, False, made.resumed, time.monotonic() - start)


@dataclass(frozen=True)
class _Made:
    """All shards of a plan."""

    results: list[ShardResult]
    resumed: int
    choice: Choice | None


@contextmanager
def _no_empty_rest(work: WorkDirectory) -> Iterator[None]:
    """Remove the working folder after a failure where it holds nothing to go on from."""
    try:
        yield
    except BaseException:
        if work.path.exists() and not work.has_results():
            work.remove()
        raise


def _make(plan: Plan, request: ConvertRequest, work: WorkDirectory, quiet: bool) -> _Made:
    """Make the shards that an interrupted conversion has not finished."""
    work.start(plan.identity(), request.restart)
    found = {job.number: work.finished(job) for job in plan.jobs}
    done = {number: result for number, result in found.items() if result is not None}
    _refuse_skipped(done.values(), request)
    resumed = len(done)
    _warn_of_small_disk(plan, work.path, quiet)
    choice = _run(plan, request, work, done, quiet)
    return _Made([done[job.number] for job in plan.jobs], resumed, choice)


def _run(
    plan: Plan, request: ConvertRequest, work: WorkDirectory, done: dict[int, ShardResult], quiet: bool
) -> Choice | None:
    """Make the shards that are missing from `done`; returns what tokenized them."""
    jobs = [job for job in plan.jobs if job.number not in done]
    if not jobs:
        return None
    total = sum(_size(job) for job in plan.jobs)
    finished = total - sum(_size(job) for job in jobs)
    if request.dask is None:
        start_fork_server()
    choice = choose_backend(plan, request.backend)
    setup = WorkerSetup(
        tokenizer=plan.tokenizer.path.absolute(),  # workers may have another current folder
        tokenizer_type=plan.tokenizer.type,
        backend=choice.backend,
        prepared=choice.prepared,
        options=plan.options,
        on_error=request.on_error,
        folders=work.folders,
        lock_file=work.lock_file,
    )
    with Progress("convert", total, finished, quiet) as progress, _pool(setup, request) as pool:
        if done:
            progress.say(f"going on: {len(done)} of {counted(len(plan.jobs), 'shard')} finished")
        try:
            for event in pool.run(jobs):
                if isinstance(event, Advance):
                    progress.advance(event.bytes, event.tokens)
                else:
                    done[event.number] = event
        except KeyboardInterrupt:
            progress.say(
                f"stopped: {len(done)} of {counted(len(plan.jobs), 'shard')} finished; the same command goes on"
            )
            raise
        except BackendWrong as error:
            raise _backend_wrong(error, pool, work) from None
    return choice


def _pool(setup: WorkerSetup, request: ConvertRequest) -> WorkerPool | DaskPool:
    if request.dask is not None:
        return DaskPool(setup, request.dask)
    return WorkerPool(setup, request.workers or len(os.sched_getaffinity(0)))


def _backend_wrong(error: BackendWrong, pool: WorkerPool | DaskPool, work: WorkDirectory) -> RunError:
    """Nothing that a wrong library has made is kept, and no other worker may finish more of it."""
    pool.stop()
    thrown_away = counted(work.forget(error.backend), "shard")
    return RunError(
        f"{error}. {thrown_away} that it had made are thrown away; run again with --tokenizer-backend reference"
    )


def _size(job: ShardJob) -> int:
    return sum(unit.end - unit.start for unit in job.units)


def _refuse_skipped(results: Collection[ShardResult], request: ConvertRequest) -> None:
    """Shards made with `--on-error skip` may have left documents out."""
    left_out: Counter[str] = Counter()
    for result in results:
        left_out.update(result.skipped)
    if left_out and request.on_error == "fail":
        faults = [fault for result in results for fault in result.faults][:SHOWN_FAULTS]
        remedy = "An earlier run left them out: go on with --on-error skip, or begin again with --restart"
        raise unusable(faults, left_out, remedy)


def _warn_of_small_disk(plan: Plan, folder: Path, quiet: bool) -> None:
    free = shutil.disk_usage(folder).free
    need = plan.inputs.size
    if free < need and not quiet:
        print(
            f"warning: {folder.parent} has {free / 1e9:.2f} GB free; the output of {need / 1e9:.2f} GB of input "
            f"takes about as much",
            file=sys.stderr,
        )


def _summary(
    plan: Plan, work: WorkDirectory, manifest: Manifest, seconds: float, reused: bool = False, made: _Made | None = None
) -> ConvertSummary:
    notices: Counter[str] = Counter()
    for result in made.results if made else ():
        notices.update(result.notices)
    return ConvertSummary(
        manifest=manifest,
        output=work.output,
        reused=reused,
        resumed_shards=made.resumed if made else 0,
        input_bytes=plan.inputs.size,
        input_files=len(plan.inputs.sources),
        ignored=tuple(plan.inputs.ignored),
        notices=dict(notices),
        tokenized=made.choice if made else None,
        seconds=seconds,
    )
