"""Which pipeline stage each layer is on, and which layers are computed again in the backward pass.

Both follow MindFormers 1.9 (`LayerSetting` in its transformer/utils.py), so that a strategy taken from there means the same.
The functions take a strategy that `checks.py` has accepted.
"""

from __future__ import annotations

from msllm.config.sections import LayerCounts, ParallelConfig, RecomputeConfig, RunConfig


def micro_batches(config: RunConfig) -> int:
    """Forward passes of one optimizer step on each device."""
    if config.parallel_config.pipeline_stage > 1:
        return config.parallel_config.micro_batch_num
    return config.training.gradient_accumulation_steps


def share_offsets(parallel: ParallelConfig) -> tuple[tuple[int, ...], ...]:
    """`offset` written out: one row for each interleave chunk, one number for each stage. One given row holds for all chunks."""
    stages, chunks = parallel.pipeline_stage, parallel.pp_interleave_num
    offset = parallel.offset
    if isinstance(offset, int):
        return ((offset,) * stages,) * chunks
    rows = tuple(row for row in offset if isinstance(row, tuple))
    return rows or (tuple(number for number in offset if isinstance(number, int)),) * chunks


def layer_shares(num_hidden_layers: int, parallel: ParallelConfig) -> tuple[tuple[int, ...], ...]:
    """Layers of each stage in each interleave chunk, (chunk, stage): the even share, rounded down, plus its offset."""
    even = num_hidden_layers // (parallel.pipeline_stage * parallel.pp_interleave_num)
    return tuple(tuple(even + more for more in row) for row in share_offsets(parallel))


def stage_layer_counts(num_hidden_layers: int, parallel: ParallelConfig) -> tuple[int, ...]:
    """Layers of each stage, all of its chunks together."""
    return tuple(map(sum, zip(*layer_shares(num_hidden_layers, parallel))))


def layer_places(num_hidden_layers: int, parallel: ParallelConfig) -> tuple[tuple[int, int], ...]:
    """(stage, interleave chunk) of each layer: layers run through all stages in chunk 0, then through all in chunk 1, ..."""
    return tuple(
        (stage, chunk)
        for chunk, row in enumerate(layer_shares(num_hidden_layers, parallel))
        for stage, share in enumerate(row)
        for _ in range(share)
    )


def recomputed_layers(
    num_hidden_layers: int, parallel: ParallelConfig, recompute: RecomputeConfig
) -> tuple[set[int], set[int]]:
    """Layers that are computed again as a whole, and layers of which only the cheap parts are.

    A count stands for the first layers of its stage; where a stage has several chunks, it takes the first layer of each, then
    the second of each, and so on. `select_recompute` counts from the first layer too and leaves out what `recompute` has.
    """
    full = _first_layers(num_hidden_layers, parallel, recompute.recompute)
    return full, _first_layers(num_hidden_layers, parallel, recompute.select_recompute) - full


def _first_layers(num_hidden_layers: int, parallel: ParallelConfig, counts: LayerCounts) -> set[int]:
    if isinstance(counts, bool):
        return set(range(num_hidden_layers)) if counts else set()
    places = layer_places(num_hidden_layers, parallel)
    # (place in its chunk, chunk, layer), by stage: the order in which a stage's layers are taken.
    in_order: dict[int, list[tuple[int, int, int]]] = {}
    for layer, (stage, chunk) in enumerate(places):
        in_order.setdefault(stage, []).append((layer - places.index((stage, chunk)), chunk, layer))
    return {layer for stage, count in enumerate(counts) for _, _, layer in sorted(in_order[stage])[:count]}
