"""A run made small enough for a laptop, on which its strategy means the same.

Every size that the strategy divides is kept divisible by it: heads, feed-forward, vocabulary and sequence by model_parallel, and
rows of weights by what optimizer parallel cuts them in; layers fill all stages; the batch fills all micro batches.
"""

from __future__ import annotations

import math
from typing import Any

from msllm.config.sections import RunConfig
from msllm.config.stages import share_offsets, stage_layer_counts

HEAD_DIM = 16
TOKENS = 16
"""Shortest sequence."""


def shrink(config: RunConfig) -> RunConfig:
    """The same strategy on the smallest model of the same kind. Fields that are small enough already stay as they are."""
    parallel, model = config.parallel_config, config.model
    tensor = parallel.model_parallel
    unit = tensor * parallel.data_parallel if parallel.enable_parallel_optimizer else tensor
    kv_heads = getattr(model, "kv_heads", model.num_attention_heads)
    group = min(model.num_attention_heads // kv_heads, 2)
    heads = _multiple(min(kv_heads, 2), tensor) * group
    # The width is the heads' and is cut in rows by optimizer parallel too.
    while heads * HEAD_DIM % unit:
        heads += tensor * group
    seq_length = _multiple(min(config.data.seq_length, TOKENS), tensor)
    changes: dict[str, Any] = {
        "hidden_size": heads * HEAD_DIM,
        "num_attention_heads": heads,
        "num_key_value_heads": heads // group,
        "head_dim": HEAD_DIM,
        "intermediate_size": _multiple(2 * heads * HEAD_DIM, unit),
        "vocab_size": _multiple(min(model.vocab_size, 64), unit) if model.vocab_size % tensor == 0 else 61,
        "num_hidden_layers": _layers(config),
        "max_position_embeddings": seq_length,
    }
    fields = type(model).model_fields
    small = model.model_copy(update={name: value for name, value in changes.items() if name in fields})
    micro_batches = parallel.micro_batch_num if parallel.pipeline_stage > 1 else 1
    batch = parallel.data_parallel * config.training.gradient_accumulation_steps * micro_batches
    return _recomputed(
        config.model_copy(
            update={
                "model": small,
                "data": config.data.model_copy(update={"seq_length": seq_length}),
                "training": config.training.model_copy(update={"global_batch_size": batch}),
            }
        )
    )


def executable(config: RunConfig) -> RunConfig:
    """What a CPU can execute of it: float32, no data sink; and optimizer parallel that leaves no small weight whole."""
    training = {
        "amp_level": "O0",
        "compute_dtype": "float32",
        "loss_scale": None,
        "device_target": "auto",
        "chip": None,
        "sink_size": 1,
    }
    parallel = config.parallel_config
    if parallel.enable_parallel_optimizer:
        details = parallel.parallel_optimizer_config.model_copy(update={"parallel_optimizer_threshold": 0})
        parallel = parallel.model_copy(update={"parallel_optimizer_config": details})
    return config.model_copy(
        update={"training": config.training.model_copy(update=training), "parallel_config": parallel}
    )


def on_one_device(config: RunConfig) -> RunConfig:
    """The same run without any strategy: all samples of a step in one forward pass."""
    defaults = {name: RunConfig.model_fields[name].default for name in ("parallel_config", "recompute_config")}
    training = config.training.model_copy(update={"gradient_accumulation_steps": 1})
    return config.model_copy(update={**defaults, "training": training})


def changes(before: RunConfig, after: RunConfig) -> list[str]:
    """`section.key old -> new` for every value that differs."""
    old, new = _flat(before.to_dict()), _flat(after.to_dict())
    return [f"{key} {old[key]} -> {new[key]}" for key in old if key in new and old[key] != new[key]]


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return flat


def _multiple(number: int, step: int) -> int:
    """The smallest multiple of `step` that is at least `number`."""
    return math.ceil(number / step) * step


def _layers(config: RunConfig) -> int:
    """As many as fill every stage and chunk with at least one, two without a pipeline, with the same offsets."""
    offsets = [number for row in share_offsets(config.parallel_config) for number in row]
    even = max(1, 2 // len(offsets)) - min(offsets)
    return min(even * len(offsets) + sum(offsets), config.model.num_hidden_layers)


def _recomputed(config: RunConfig) -> RunConfig:
    """Counts of recomputed layers that are no larger than the stages now are."""
    counts = stage_layer_counts(config.model.num_hidden_layers, config.parallel_config)
    given = config.recompute_config
    update = {
        name: tuple(min(count, layers) for count, layers in zip(value, counts))
        for name in ("recompute", "select_recompute")
        if isinstance(value := getattr(given, name), tuple)
    }
    return config.model_copy(update={"recompute_config": given.model_copy(update=update)})
