"""From a configuration to the step cell."""

from __future__ import annotations

from typing import Any

import numpy as np

from msllm.config.sections import RunConfig
from msllm.parallel.world import World


def build_step(config: RunConfig, model: Any, world: World) -> Any:
    """The `TrainStep` that trains `model` as `config` says. The model's precision is set in place."""
    from msllm.optim.adamw import AdamW
    from msllm.optim.schedule import learning_rates
    from msllm.parallel.reduce import GradientSum, MeanOverRanks
    from msllm.training.amp import apply_amp
    from msllm.training.step import LossScaler, TrainStep

    training, optimizer = config.training, config.optimizer
    apply_amp(model, training.amp_level, training.compute_dtype)
    scale = training.loss_scale
    return TrainStep(
        model,
        AdamW(model.trainable_params(), optimizer.betas, optimizer.eps, optimizer.weight_decay),
        learning_rates(config.lr_schedule, optimizer.learning_rate, training.train_steps),
        GradientSum(world.size),
        MeanOverRanks(world.size),
        config.parallel_config.data_parallel,
        training.gradient_accumulation_steps,
        optimizer.max_grad_norm,
        LossScaler(scale.loss_scale_value, scale.scale_factor, scale.scale_window) if scale else None,
    )


def get_tensors(step_cell: Any) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """(weights, everything else) of a step cell by name, as arrays."""
    weights = {p.name: p.asnumpy() for p in step_cell.weights}
    rest = {p.name: p.asnumpy() for p in step_cell.get_parameters() if p.name not in weights}
    return weights, rest


def tensor_problems(step_cell: Any, tensors: dict[str, np.ndarray]) -> list[str]:
    """How `tensors` differ from the step cell's parameters in name and shape."""
    wanted = {p.name: tuple(p.shape) for p in step_cell.get_parameters()}
    found = [f"{name} is missing" for name in wanted if name not in tensors]
    found += [f"{name} has no place in this model" for name in tensors if name not in wanted]
    found += [
        f"{name} has shape {tuple(tensors[name].shape)}, the model {shape}"
        for name, shape in wanted.items()
        if name in tensors and tuple(tensors[name].shape) != shape
    ]
    return found


def set_tensors(cell: Any, tensors: dict[str, np.ndarray]) -> None:
    """Put arrays in the place of the parameters of the same names: all that `cell`, a model or a step cell, has."""
    from mindspore import Tensor

    for parameter in cell.get_parameters():
        parameter.set_data(Tensor(tensors[parameter.name], parameter.dtype))
