"""What a legal strategy amounts to on a cluster: its figures, and what its author should know before devices are booked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from msllm.config.framework_checks import layout, needs_ascend
from msllm.config.sections import ParallelConfig, RunConfig
from msllm.config.stages import layer_shares, micro_batches, stage_layer_counts
from msllm.hardware.allowances import allowances
from msllm.hardware.cluster import Cluster
from msllm.planner.costs import (
    bubble_fraction,
    micro_batch_size,
    micro_batches_for,
    recomputed_share,
    seconds,
    tensor_parallel_bytes,
)
from msllm.planner.groups import Groups, communication_groups
from msllm.planner.memory import StageMemory, estimate_memory

MUCH_IDLE = 0.1
"""Idle share of a pipeline from which on it is worth a warning."""


@dataclass(frozen=True)
class Verdict:
    """A strategy that breaks no rule."""

    rows: tuple[tuple[str, str], ...]
    """(what, value) for people, in reading order."""
    figures: dict[str, Any]
    """The same as numbers, for programs."""
    warnings: tuple[str, ...]
    """What is legal and yet may not be meant."""


def verdict(config: RunConfig, cluster: Cluster) -> Verdict:
    """Judge a configuration that `load_run_config` accepted on a cluster that has enough devices."""
    groups = communication_groups(config.parallel_config, cluster)
    figures = _figures(config, cluster, groups)
    warnings = (*_memory_warnings(config, cluster, figures), *_warnings(config, cluster, groups))
    return Verdict(tuple(_rows(config, cluster, groups, figures)), figures, warnings)


def _figures(config: RunConfig, cluster: Cluster, groups: tuple[Groups, ...]) -> dict[str, Any]:
    parallel = config.parallel_config
    return {
        "devices": parallel.device_num,
        "servers": -(-parallel.device_num // cluster.devices_per_server),
        "chip": cluster.chip,
        "hbm_gb": cluster.hbm_gb,
        "degrees": {name: getattr(parallel, name) for name in ("data_parallel", "model_parallel", "pipeline_stage")},
        "layers_per_stage": list(stage_layer_counts(config.model.num_hidden_layers, parallel)),
        "micro_batches": micro_batches(config),
        "micro_batch_size": micro_batch_size(config),
        "tokens_per_step": config.training.global_batch_size * config.data.seq_length,
        "bubble_fraction": bubble_fraction(parallel),
        "tensor_parallel_bytes": tensor_parallel_bytes(config),
        "recomputed_share": recomputed_share(config),
        "memory": [_stage_memory(stage, cluster, groups) for stage in estimate_memory(config)],
        "groups": {
            group.axis: {
                "count": group.count,
                "size": group.size,
                "spans_servers": group.spans_servers,
                "link": group.link.name,
                "ranks": list(group.ranks),
            }
            for group in groups
        },
    }


def _stage_memory(stage: StageMemory, cluster: Cluster, groups: tuple[Groups, ...]) -> dict[str, Any]:
    """Bytes on a device of the stage, named as by `msllm rehearse memory`; it is in one group of each axis and in that of all."""
    beside = allowances(stage.total, len(groups) + 1 if groups else 0)
    total = stage.total + sum(beside.values())
    return {
        "stage": stage.stage,
        "weights_bytes": stage.weights,
        "optimizer_bytes": stage.optimizer,
        "gradient_bytes": stage.gradients,
        "activation_bytes": stage.activations + stage.working,
        "peak_bytes": stage.total,
        **beside,
        "total_bytes": total,
        "fits": total <= cluster.hbm_gb << 30,
    }


def _rows(
    config: RunConfig, cluster: Cluster, groups: tuple[Groups, ...], figures: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    parallel = config.parallel_config
    degrees = " x ".join(f"{name} {degree}" for name, degree in figures["degrees"].items())
    yield "strategy", f"{degrees}{_switches(parallel)}"
    yield (
        "devices",
        f"{parallel.device_num} of {cluster.chip} {cluster.hbm_gb} GB in {_count(figures['servers'], 'server')}",
    )
    yield "layers per stage", _layers(config)
    yield (
        "batch",
        f"{config.training.global_batch_size} samples a step = {_count(parallel.data_parallel, 'replica')} x "
        f"{_count(micro_batches(config), 'micro batch', 'micro batches')} x {_count(micro_batch_size(config), 'sample')} of "
        f"{config.data.seq_length} tokens",
    )
    for group in groups:
        where = (
            f"over {group.link.name} between servers" if group.spans_servers else f"over {group.link.name} in a server"
        )
        yield f"{group.axis} groups", f"{group.count} of {group.size}, {where}, as ranks {_ranks(group.ranks)}"
    fullest = max(figures["memory"], key=lambda stage: stage["total_bytes"])
    where = f" on stage {fullest['stage']}" if parallel.pipeline_stage > 1 else ""
    parts = ("weights", "optimizer", "gradient", "activation")
    yield (
        "memory on Ascend",
        f"about {_gb(fullest['total_bytes'])} of {cluster.hbm_gb} GB a device{where}: "
        + ", ".join(f"{name} {_gb(fullest[f'{name}_bytes'])}" for name in parts)
        + f", beside the plan {_gb(fullest['total_bytes'] - fullest['peak_bytes'])}",
    )
    if parallel.pipeline_stage > 1:
        yield "pipeline idle", f"{bubble_fraction(parallel):.1%} of a step"


def _switches(parallel: ParallelConfig) -> str:
    names = ("use_seq_parallel", "enable_parallel_optimizer", "vocab_emb_dp")
    return "".join(f", {name}" for name in names if getattr(parallel, name))


def _layers(config: RunConfig) -> str:
    parallel, number = config.parallel_config, config.model.num_hidden_layers
    counts = stage_layer_counts(number, parallel)
    shown = f"{counts[0]} each" if len(set(counts)) == 1 and len(counts) > 1 else " ".join(map(str, counts))
    if parallel.pp_interleave_num > 1:
        chunks = " + ".join("/".join(map(str, row)) for row in layer_shares(number, parallel))
        shown += f" in {parallel.pp_interleave_num} interleaved groups ({chunks})"
    return shown


def _gb(number: int) -> str:
    """As people read it: 0.05, 1.2, 29."""
    size = number / 2**30
    return f"{size:.2g}" if size < 10 else f"{size:.0f}"


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _ranks(ranks: tuple[int, ...]) -> str:
    if len(ranks) <= 4:
        return " ".join(map(str, ranks))
    return f"{ranks[0]} {ranks[1]} ... {ranks[-1]}"


def _warnings(config: RunConfig, cluster: Cluster, groups: tuple[Groups, ...]) -> Iterator[str]:
    tensor = next((group for group in groups if group.axis == "model_parallel"), None)
    if tensor is not None and tensor.spans_servers:
        yield _tensor_parallel_between_servers(config, cluster, tensor)
    if not needs_ascend(config.training, config.parallel_config) and list(layout(config.parallel_config)):
        yield f"{config.parallel_config.device_num} devices are for CPU: MindSpore takes 1, 2, 4 or a multiple of 8 on Ascend"
    yield from _pipeline_warnings(config.parallel_config)
    yield from _optimizer_warnings(config)
    share = recomputed_share(config)
    if share:
        yield f"recompute does the forward pass of {share:.0%} of the layers twice: about {share / 3:.0%} more work a step"
    if config.parallel_config.model_parallel > 1 and not config.parallel_config.use_seq_parallel:
        degree = config.parallel_config.model_parallel
        yield (
            f"use_seq_parallel is false: true cuts what lies between the tensor-parallel blocks by {degree} too, "
            "for the same communication"
        )


def _tensor_parallel_between_servers(config: RunConfig, cluster: Cluster, group: Groups) -> str:
    sent = tensor_parallel_bytes(config)
    between = seconds(sent, cluster.between, group.size)
    inside = seconds(sent, cluster.inside, min(group.size, cluster.devices_per_server))
    layers = max(stage_layer_counts(config.model.num_hidden_layers, config.parallel_config))
    return (
        f"model_parallel ({group.size}) spans servers of {cluster.devices_per_server} devices, as ranks "
        f"{_ranks(group.ranks)}: each device sends {sent / 1e9:.3g} GB for each layer and micro batch over "
        f"{cluster.between.name}, which is {between / inside:.1f} times slower than {cluster.inside.name} "
        f"({layers * micro_batches(config) * between:.3g} s a step instead of {layers * micro_batches(config) * inside:.3g}, "
        f"at peak rates); set model_parallel to a divisor of {cluster.devices_per_server} and use pipeline_stage between "
        "servers"
    )


def _memory_warnings(config: RunConfig, cluster: Cluster, figures: dict[str, Any]) -> Iterator[str]:
    over = [stage for stage in figures["memory"] if not stage["fits"]]
    if not over:
        return
    parallel, worst = config.parallel_config, max(over, key=lambda stage: stage["total_bytes"])
    ways = [
        ("recompute_config.recompute to true", figures["recomputed_share"] < 1),
        ("enable_parallel_optimizer to true", parallel.data_parallel > 1 and not parallel.enable_parallel_optimizer),
        ("use_seq_parallel to true", parallel.model_parallel > 1 and not parallel.use_seq_parallel),
        ("smaller micro batches", figures["micro_batch_size"] > 1),
        ("more model_parallel or pipeline_stage", True),
    ]
    yield (
        f"stage {worst['stage']} takes about {_gb(worst['total_bytes'])} GB of a device's {cluster.hbm_gb}; set "
        f"{', '.join(way for way, open_to_it in ways if open_to_it)}, and measure with msllm rehearse memory"
    )


def _pipeline_warnings(parallel: ParallelConfig) -> Iterator[str]:
    idle = bubble_fraction(parallel)
    if idle > MUCH_IDLE:
        yield (
            f"the pipeline idles {idle:.0%} of a step, with {parallel.pipeline_stage} stages and {parallel.micro_batch_num} "
            f"micro batches; micro_batch_num {micro_batches_for(parallel, MUCH_IDLE)} would bring that to {MUCH_IDLE:.0%}"
        )
    if parallel.pipeline_stage == 1 and parallel.micro_batch_num > 1:
        yield f"micro_batch_num ({parallel.micro_batch_num}) does nothing with pipeline_stage 1"


def _optimizer_warnings(config: RunConfig) -> Iterator[str]:
    """Weights that enable_parallel_optimizer leaves whole without a word."""
    parallel, model = config.parallel_config, config.model
    if not parallel.enable_parallel_optimizer:
        return
    threshold = parallel.parallel_optimizer_config.parallel_optimizer_threshold
    vocab_cut = 1 if parallel.vocab_emb_dp else parallel.model_parallel
    largest_kb = model.vocab_size * model.hidden_size * 4 / vocab_cut / 1024
    if largest_kb < threshold:
        yield (
            f"enable_parallel_optimizer cuts nothing: the embedding has {largest_kb:.0f} KB on a device, below "
            f"parallel_optimizer_threshold ({threshold})"
        )
    first_axes = {"hidden_size": model.hidden_size, "vocab_size": model.vocab_size // vocab_cut}
    if "intermediate_size" in model.cut_by_model_parallel():
        first_axes["intermediate_size"] = model.cut_by_model_parallel()["intermediate_size"] // parallel.model_parallel
    for name, rows in first_axes.items():
        if rows % parallel.data_parallel:
            share = f", {rows} on a device," if rows != getattr(model, name) else f" ({rows})"
            yield (
                f"enable_parallel_optimizer leaves weights whole whose first axis is {name}{share} as data_parallel "
                f"({parallel.data_parallel}) does not divide it"
            )
