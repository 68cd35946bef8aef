"""What a strategy costs in idle time, communication and repeated work: arithmetic on sizes and peak rates, no measurement."""

from __future__ import annotations

import math

from msllm.config.sections import ParallelConfig, RunConfig
from msllm.config.stages import micro_batches, recomputed_layers
from msllm.hardware.links import Link

COMPUTE_BYTES = {"float32": 4, "float16": 2, "bfloat16": 2}


def bubble_fraction(parallel: ParallelConfig) -> float:
    """Idle share of a 1F1B pipeline's step (Narayanan et al. 2021, arXiv:2104.04473): (p - 1) / (v m + p - 1)."""
    idle = parallel.pipeline_stage - 1
    return idle / (parallel.pp_interleave_num * parallel.micro_batch_num + idle)


def micro_batches_for(parallel: ParallelConfig, idle: float) -> int:
    """Fewest micro batches, a multiple of the stages, that bring the idle share down to `idle`."""
    stages = parallel.pipeline_stage
    least = (stages - 1) * (1 - idle) / idle / parallel.pp_interleave_num
    # Rounded, as 0.9 / 0.1 is a little more than 9 in floating point.
    return -(-math.ceil(round(least, 6)) // stages) * stages


def micro_batch_size(config: RunConfig) -> int:
    """Samples of one forward pass on one device."""
    return config.training.global_batch_size // (config.parallel_config.data_parallel * micro_batches(config))


def tensor_parallel_bytes(config: RunConfig) -> float:
    """Bytes that each device sends for one layer and one micro batch, forward and backward.

    Two blocks a layer reduce (tokens, hidden) activations over model_parallel in each direction: 4 all-reduces, or with
    use_seq_parallel as many pairs of all-gather and reduce-scatter, which send the same 2 (n - 1) / n of the activations.
    """
    degree = config.parallel_config.model_parallel
    tokens = micro_batch_size(config) * config.data.seq_length
    activation = tokens * config.model.hidden_size * COMPUTE_BYTES[config.training.compute_dtype]
    return 4 * 2 * (degree - 1) / degree * activation


def seconds(sent: float, link: Link, group: int) -> float:
    """Shortest time in which a device of a group of that size sends so many bytes."""
    return sent / (link.bandwidth(group) * 1e9)


def recomputed_share(config: RunConfig) -> float:
    """Share of the layers whose forward pass is done twice."""
    number = config.model.num_hidden_layers
    return len(recomputed_layers(number, config.parallel_config, config.recompute_config)[0]) / number
