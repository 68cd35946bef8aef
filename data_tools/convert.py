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
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_tools.gate import Choice, choose_backend
from data_tools.plan import ConvertRequest, Plan, make_plan
from data_tools.progress import Progress
from data_tools.reuse import finished_output, refuse_foreign_output
from data_tools.shard import SHOWN_FAULTS, BackendWrong, ShardJob, ShardResult, unusable
from data_tools.words import counted
from data_tools.workdir import WorkDirectory
from data_tools.worker import Advance, WorkerPool, WorkerSetup, start_fork_server
from msllm.data.manifest import Manifest, TokenizerInfo
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
    with WorkDirectory(request.output) as work:
        try:
            manifest = finished_output(plan, request)
            if manifest is not None:
                work.remove_unless_other(plan.identity())
                return _summary(plan, work, manifest, time.monotonic() - start, reused=True)
            work.start(plan.identity(), request.restart)
            found = {job.number: work.finished(job) for job in plan.jobs}
            done = {number: result for number, result in found.items() if result is not None}
            _refuse_skipped(done.values(), request)
            resumed = len(done)
            _warn_of_small_disk(plan, work.path, quiet)
            choice = _run(plan, request, work, done, quiet)
            results = [done[job.number] for job in plan.jobs]
            if too_small := _too_small(plan, results):
                work.remove()
                raise InputError(too_small)
            manifest = _manifest(plan, results)
            work.publish(manifest, plan.tokenizer.path)
        except BaseException:
            if work.path.exists() and not work.has_results():
                work.remove()  # nothing to go on from
            raise
    notices: Counter[str] = Counter()
    for result in results:
        notices.update(result.notices)
    return _summary(
        plan, work, manifest, time.monotonic() - start, resumed=resumed, notices=dict(notices), choice=choice
    )


def _run(
    plan: Plan, request: ConvertRequest, work: WorkDirectory, done: dict[int, ShardResult], quiet: bool
) -> Choice | None:
    """Make the shards that are missing from `done`; returns what tokenized them."""
    jobs = [job for job in plan.jobs if job.number not in done]
    if not jobs:
        return None
    total = sum(_size(job) for job in plan.jobs)
    finished = total - sum(_size(job) for job in jobs)
    start_fork_server()
    choice = choose_backend(plan, request.backend)
    tokenizer = plan.tokenizer.path.absolute()  # workers may have another current folder
    setup = WorkerSetup(tokenizer, choice.backend, plan.options, request.on_error, work.folders, work.lock_file)
    workers = request.workers or len(os.sched_getaffinity(0))
    with Progress("convert", total, finished, quiet) as progress, WorkerPool(setup, workers) as pool:
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


def _backend_wrong(error: BackendWrong, pool: WorkerPool, work: WorkDirectory) -> RunError:
    """Nothing that a wrong library has made is kept, and no other worker may finish more of it."""
    pool.stop()
    thrown_away = counted(work.forget(error.backend), "shard")
    return RunError(
        f"{error}. {thrown_away} that it had made are thrown away; run again with --tokenizer-backend reference"
    )


def _size(job: ShardJob) -> int:
    return sum(unit.end - unit.start for unit in job.units)


def _too_small(plan: Plan, results: list[ShardResult]) -> str:
    """What to say where the corpus fills no row, "" where it does."""
    tokens = sum(result.tokens for result in results)
    row = plan.options.seq_length + 1
    if tokens >= row and any(result.info for result in results):
        return ""
    skipped = sum(sum(result.skipped.values()) for result in results)
    left_out = f" ({skipped:,} skipped)" if skipped else ""
    documents = sum(result.documents for result in results)
    shards = counted(len(results), "shard")
    what = f"{counted(documents, 'document')}{left_out} with {counted(tokens, 'token')} in {shards}"
    return f"the corpus is too small: {what}, a row needs {row} (--seq-length + 1)"


def _manifest(plan: Plan, results: list[ShardResult]) -> Manifest:
    shards = tuple(result.info for result in results if result.info is not None)
    skipped: Counter[str] = Counter()
    for result in results:
        skipped.update(result.skipped)
    return Manifest(
        seq_length=plan.options.seq_length,
        rows=sum(shard.rows for shard in shards),
        tokens=sum(result.tokens for result in results),
        documents=sum(result.documents for result in results),
        padding_tokens=sum(shard.padding_tokens for shard in shards),
        dropped_tokens=sum(result.dropped_tokens for result in results),
        eod_id=plan.tokenizer.eod_id,
        vocab_size=plan.tokenizer.vocab_size,
        max_token_id=max(shard.max_token_id for shard in shards),
        tokenizer=TokenizerInfo(
            type=plan.tokenizer.type, file=plan.tokenizer_file, fingerprint=plan.tokenizer.fingerprint
        ),
        options=plan.options,
        versions=plan.versions,
        skipped=dict(sorted(skipped.items())),
        shards=shards,
        sources=tuple(source for result in results for source in result.sources),
    )


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
    plan: Plan,
    work: WorkDirectory,
    manifest: Manifest,
    seconds: float,
    reused: bool = False,
    resumed: int = 0,
    notices: dict[str, int] | None = None,
    choice: Choice | None = None,
) -> ConvertSummary:
    return ConvertSummary(
        manifest=manifest,
        output=work.output,
        reused=reused,
        resumed_shards=resumed,
        input_bytes=plan.inputs.size,
        input_files=len(plan.inputs.sources),
        ignored=tuple(plan.inputs.ignored),
        notices=notices or {},
        tokenized=choice,
        seconds=seconds,
    )
