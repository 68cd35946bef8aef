"""`msllm bench`: how fast a step is, and how fast its data come. Figures hold for this machine and this moment; compare
ratios measured in one run."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msllm.commands.mindspore_session import mindspore_session
from msllm.commands.options import AsJson, ConfigFiles, Overrides, ParallelFile, load_from_options, print_json

if TYPE_CHECKING:
    from msllm.config.sections import RunConfig

app = typer.Typer(help="Measure the training step, the data loader and the conversion.", no_args_is_help=True)

Steps = Annotated[int, typer.Option(min=1, help="Steps that are timed.")]
Warmup = Annotated[int, typer.Option(min=0, help="Steps before them that are not.")]


@app.command()
def step(
    config: ConfigFiles,
    parallel: ParallelFile = None,
    overrides: Overrides = None,
    steps: Steps = 10,
    warmup: Warmup = 2,
    as_json: AsJson = False,
) -> None:
    """Tokens per second of the whole training step on random tokens, with the compilation apart. Needs no dataset.

    Example: msllm bench step -c models/llama/configs/llama_tiny.yaml --steps 20
    """
    loaded = load_from_options(config, parallel, overrides)
    trained = loaded.config
    parameters, compile_seconds, timed = _timed_steps(trained, steps, warmup)
    per_step = statistics.median(timed)
    count = trained.training.global_batch_size * trained.data.seq_length
    result = {
        "model_type": trained.model.model_type,
        "parameters": parameters,
        "tokens_per_step": count,
        "compile_seconds": compile_seconds,
        "step_seconds": per_step,
        "step_seconds_min": min(timed),
        "step_seconds_max": max(timed),
        "tokens_per_second": count / per_step,
    }
    if as_json:
        print_json(result)
        return
    typer.echo(
        f"{trained.model.model_type}, {parameters:,} parameters, {count:,} tokens a step: {count / per_step:,.0f} tokens/s, "
        f"{per_step:.3f} s a step (median of {steps}, {min(timed):.3f} to {max(timed):.3f}); "
        f"first step with compilation {compile_seconds:.1f} s"
    )


@app.command()
def data(
    config: ConfigFiles,
    parallel: ParallelFile = None,
    overrides: Overrides = None,
    batches: Annotated[int, typer.Option(min=1, help="Batches that are read.")] = 200,
    with_step: Annotated[
        int, typer.Option(min=0, help="Also train so many steps and measure the share of time that they wait for data.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """Rows per second of the loader alone, and the share of a training step that is spent waiting for it.

    Example: msllm bench data -c models/llama/configs/llama_tiny.yaml --set data.train_dataset=data/train --with-step 10
    """
    from msllm.data.dataset import RankBatches, check_dataset
    from msllm.data.manifest import read_manifest
    from msllm.data.sampler import RankShare, SampleOrder

    trained = load_from_options(config, parallel, overrides).config
    manifest = read_manifest(trained.data.train_dataset)
    check_dataset(manifest, trained.data, trained.model, trained.training.global_batch_size)
    order = SampleOrder(manifest.rows, trained.training.seed, trained.data.shuffle)
    share = RankShare(trained.training.global_batch_size, trained.parallel_config.data_parallel)
    reader = RankBatches(manifest, order, share, trained.data)
    first, seconds = _read_seconds(reader, batches)
    rows = batches * share.local_batch_size
    result: dict[str, Any] = {
        "rows": rows,
        "rows_per_second": rows / seconds,
        "tokens_per_second": rows * manifest.seq_length / seconds,
        "first_batch_seconds": first,
    }
    if with_step:
        result["wait_share"] = _wait_share(trained, reader, with_step)
    if as_json:
        print_json(result)
        return
    waits = f"; a training step waits {100 * result['wait_share']:.1f}% of its time" if with_step else ""
    typer.echo(
        f"{rows:,} rows of {manifest.seq_length} tokens: {rows / seconds:,.0f} rows/s, "
        f"{result['tokens_per_second']:,.0f} tokens/s, first batch after {first:.2f} s{waits}"
    )


@app.command()
def convert(
    inputs: Annotated[
        list[str], typer.Option("--input", "-i", metavar="PATH", help="Corpus, as for `msllm data convert`.")
    ],
    tokenizer: Annotated[
        Path, typer.Option(metavar="FILE", help="SentencePiece .model or Hugging Face tokenizer.json.")
    ],
    seq_length: Annotated[int, typer.Option(help="Tokens of a row that are predicted.")] = 4096,
    text_key: Annotated[str, typer.Option(help="Key or column of the text.")] = "text",
    size_mb: Annotated[
        int, typer.Option(min=1, help="Size of the .jsonl that is converted, made of the input's documents, repeated.")
    ] = 290,
    backends: Annotated[str, typer.Option(help="Tokenizer backends, with commas.")] = "auto,reference",
    workers: Annotated[str, typer.Option(help="Numbers of workers, with commas.")] = "2",
    rounds: Annotated[int, typer.Option(min=1, help="Times that everyone runs, in turn.")] = 3,
    versus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=COMMAND",
            help="Another converter to compare with; {input}, {output} and {tokenizer} in it are filled in. Repeat it for "
            "more; the first one is what the others are compared with.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tokens per second of whole conversions, several in turn: backends, numbers of workers, other programs.

    Example: msllm bench convert -i corpus/ --tokenizer tokenizer.model --backends auto,reference --workers 1,2
    """
    import os
    import tempfile

    from data_tools import bench
    from msllm.data.tokenizer import load_tokenizer

    load_tokenizer(tokenizer)
    contestants = [bench.other(text) for text in versus or []]
    for backend in backends.split(","):
        contestants += [bench.ours(backend.strip(), number, seq_length, text_key) for number in _numbers(workers)]
    with tempfile.TemporaryDirectory(prefix="msllm-corpus-") as scratch:
        corpus = Path(scratch) / "corpus.jsonl"
        documents = bench.repeat_corpus(inputs, text_key, size_mb * 1_000_000, corpus)
        tell = (lambda text: None) if as_json else (lambda text: typer.echo(text, err=True))
        scores, tokens = bench.compete(contestants, str(corpus), tokenizer.absolute(), rounds, tell)
        size = corpus.stat().st_size
    results = [score.to_dict(tokens, scores[0]) for score in scores]
    load = os.getloadavg()[0]
    if as_json:
        facts = {"documents": documents, "input_bytes": size, "tokens": tokens, "cores": os.cpu_count(), "load": load}
        print_json({**facts, "results": results})
        return
    typer.echo(
        f"{documents:,} documents, {size / 1e6:,.0f} MB, {tokens:,} tokens; medians of {rounds}; {os.cpu_count()} cores, "
        f"load {load:.1f} (other programs make the time on the clock longer, hardly the CPU time)"
    )
    for one in results:
        typer.echo(
            f"{one['name']:<32} {one['seconds']:7.1f} s {one['cpu_seconds']:7.1f} s CPU "
            f"{one['tokens_per_second'] / 1e6:6.2f} Mtok/s  x{one['times_as_fast']:.2f} (CPU x{one['times_less_cpu']:.2f})  "
            f"largest process {one['peak_bytes'] / 1e6:,.0f} MB"
        )


def _numbers(text: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        from msllm.errors import InputError

        raise InputError(f"--workers ({text}) must be numbers from 1 on, with commas")
    return numbers


@mindspore_session()
def _timed_steps(config: RunConfig, steps: int, warmup: int) -> tuple[int, float, list[float]]:
    """Number of parameters, seconds of the first step with its compilation, seconds of each timed step."""
    cell = _step_cell(config)
    import mindspore as ms
    import numpy as np

    local = config.training.global_batch_size // config.parallel_config.data_parallel
    shape = (local, config.data.seq_length + 1)
    tokens = ms.Tensor(np.random.default_rng(0).integers(0, config.model.vocab_size, shape).astype(np.int32))
    compile_seconds = _seconds(cell, tokens)
    for _ in range(warmup):
        _seconds(cell, tokens)
    timed = [_seconds(cell, tokens) for _ in range(steps)]
    return sum(int(np.prod(p.shape)) for p in cell.weights), compile_seconds, timed


def _step_cell(config: RunConfig) -> Any:
    import mindspore as ms

    from msllm.parallel.world import init_world
    from msllm.registry import build_model, sharding
    from msllm.training.build import build_step

    world = init_world(config.parallel_config, config.training.device_target)
    ms.set_seed(config.training.seed)
    return build_step(config, build_model(config.model), world, sharding(config.model))


def _seconds(cell: Any, tokens: Any) -> float:
    """Wall time of one step, until its loss is on the host."""
    started = time.perf_counter()
    cell(tokens)[0].asnumpy()
    return time.perf_counter() - started


@mindspore_session()
def _read_seconds(reader: Any, batches: int) -> tuple[float, float]:
    """Seconds until the first of so many batches, and until the last."""
    started = time.perf_counter()
    first = 0.0
    for number, _ in enumerate(reader.batches(0, batches)):
        if number == 0:
            first = time.perf_counter() - started
    return first, time.perf_counter() - started


@mindspore_session()
def _wait_share(config: RunConfig, reader: Any, steps: int) -> float:
    """Share of `steps` training steps, the compiling one not counted, that the loop waits for the next batch."""
    import mindspore as ms

    cell = _step_cell(config)
    waited = computed = 0.0
    mark = time.perf_counter()
    for number, batch in enumerate(reader.batches(0, steps + 1)):
        ready = time.perf_counter()
        computing = _seconds(cell, ms.Tensor(batch))
        if number:
            waited += ready - mark
            computed += computing
        mark = time.perf_counter()
    return waited / (waited + computed)
