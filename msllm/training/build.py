"""From a configuration to the step cell."""

from __future__ import annotations

from typing import Any

import numpy as np

from msllm.config.sections import RunConfig
from msllm.config.stages import micro_batches
from msllm.parallel.mesh import Mesh
from msllm.parallel.world import World


def build_step(config: RunConfig, model: Any, world: World, sharding: Any, reuse: bool = True) -> Any:
    """The `TrainStep` that trains `model` as `config` says.

    Args:
        config: of the run.
        model: the network; precision, strategies, stages and recomputation are put on it in place.
        world: how this process stands among the others, and who cuts the graph.
        sharding: the module `models/<name>/sharding.py` of the model.
        reuse: compile one micro batch for all of a parallel step (lazy inline).
    """
    if world.semi_auto:
        return _parallel_step(config, model, sharding, reuse)
    return _local_step(config, model, world)


def _local_step(config: RunConfig, model: Any, world: World) -> Any:
    """For one device, and for data parallel on CPU, where gradients are summed by hand."""
    from mindspore import ParameterTuple

    from msllm.parallel.reduce import GlobalNorm, GradientSum, MeanOverRanks
    from msllm.training.amp import apply_amp
    from msllm.training.gradients import LocalGradients
    from msllm.training.loss import LanguageModelLoss

    training = config.training
    apply_amp(model, training.amp_level, training.compute_dtype)
    weights = ParameterTuple(model.trainable_params())
    accumulation = training.gradient_accumulation_steps
    network = LanguageModelLoss(model)
    return _step(
        config,
        _optimizer(config, weights),
        LocalGradients(network, weights, accumulation),
        GradientSum(world.size),
        GlobalNorm([1] * len(weights)),
        MeanOverRanks(world.size),
        config.parallel_config.data_parallel * accumulation,
    )


def _parallel_step(config: RunConfig, model: Any, sharding: Any, reuse: bool) -> Any:
    """For MindSpore's semi-automatic parallel mode: what trains on Ascend, and what is rehearsed."""
    from mindspore import ParameterTuple, nn

    from msllm.parallel.placement import place_stages, recompute
    from msllm.parallel.reduce import GlobalNorm, MeanOverRanks
    from msllm.parallel.slices import weight_slice
    from msllm.training.amp import apply_amp
    from msllm.training.gradients import LocalGradients, MicroBatchGradients
    from msllm.training.loss import LanguageModelLoss, ReusedLoss

    training, parallel = config.training, config.parallel_config
    mesh = Mesh.from_config(parallel)
    apply_amp(model, training.amp_level, training.compute_dtype)
    sharding.shard(model, mesh)
    weights = ParameterTuple(model.trainable_params())
    parts = micro_batches(config)
    network = ReusedLoss(model) if parts > 1 and reuse else LanguageModelLoss(model)
    network.set_strategy(mesh.data, mesh.vocab)
    model_parts = sharding.parts(model)
    model_parts.last.append(network.loss)
    place_stages(model_parts, parallel)
    recompute(model_parts, parallel, config.recompute_config)
    # Before the gradients: MindSpore slices the moments wrongly where they are cloned after the accumulated gradients.
    optimizer = _optimizer(config, weights)
    gradients: nn.Cell = LocalGradients(network, weights)
    if parts > 1 or mesh.stages > 1:
        wrapped = nn.PipelineCell(network, parts) if mesh.stages > 1 else nn.GradAccumulationCell(network, parts)
        gradients = MicroBatchGradients(wrapped, weights, parts, mesh.optimizer_parallel)
    return _step(
        config,
        optimizer,
        gradients,
        # MindSpore has summed them where it inserted its mirror operators.
        nn.Identity(),
        GlobalNorm([weight_slice(weight, mesh, parallel).replicas for weight in weights], mesh.size),
        MeanOverRanks(mesh.size, mesh.data * mesh.tensor) if mesh.stages > 1 else nn.Identity(),
        parts,
    )


def _optimizer(config: RunConfig, weights: Any) -> Any:
    from msllm.optim.adamw import AdamW

    optimizer = config.optimizer
    return AdamW(weights, optimizer.betas, optimizer.eps, optimizer.weight_decay)


def _step(config: RunConfig, optimizer: Any, gradients: Any, reduce: Any, norm: Any, mean_loss: Any, parts: int) -> Any:
    from msllm.optim.schedule import learning_rates
    from msllm.training.step import LossScaler, TrainStep

    training, scale = config.training, config.training.loss_scale
    step = TrainStep(
        gradients,
        optimizer,
        learning_rates(config.lr_schedule, config.optimizer.learning_rate, training.train_steps),
        reduce,
        norm,
        mean_loss,
        parts,
        config.optimizer.max_grad_norm,
        LossScaler(scale.loss_scale_value, scale.scale_factor, scale.scale_window) if scale else None,
    )
    step.set_train()
    return step


def build_row_loss(config: RunConfig, model: Any, world: World, sharding: Any) -> Any:
    """The `RowLoss` that evaluates `model`, on which `build_step` has put precision, strategies and stages."""
    from msllm.parallel.placement import place_last
    from msllm.training.evaluate import RowLoss

    row_loss = RowLoss(model)
    if world.semi_auto:
        mesh = Mesh.from_config(config.parallel_config)
        row_loss.set_strategy(mesh.data, mesh.vocab)
        place_last([row_loss.token_losses.loss], sharding.parts(model), config.parallel_config)
    return row_loss


def get_tensors(step_cell: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(weights, everything else) of a step cell by name, as arrays."""
    weights = {p.name: p.asnumpy() for p in step_cell.weights}
    rest = {p.name: p.asnumpy() for p in step_cell.get_parameters() if p.name not in weights}
    return weights, rest


def set_tensors(cell: Any, tensors: dict[str, np.ndarray]) -> None:
    """Put arrays in the place of the parameters of the same names: all that `cell`, a model or a step cell, has."""
    from mindspore import Tensor

    for parameter in cell.get_parameters():
        parameter.set_data(Tensor(tensors[parameter.name], parameter.dtype))
