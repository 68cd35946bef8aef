"""One optimizer step as one graph, the same on CPU and Ascend."""

from __future__ import annotations

from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops
from mindspore.amp import DynamicLossScaleManager
from mindspore.ops import operations as P


class StepOutput(NamedTuple):
    """What a step returns, each a scalar tensor, in the order of `TrainStep`'s outputs."""

    loss: Tensor
    """Mean over all ranks and all tokens of the global batch, in nats."""
    local_loss: Tensor
    """Mean over this rank's tokens."""
    grad_norm: Tensor
    """Global norm of the mean gradient, before clipping; not finite after an overflow."""
    lr: Tensor
    """Learning rate of this step."""
    loss_scale: Tensor
    """Loss scale that this step was computed with; 1 without float16."""
    finite: Tensor
    """Whether the weights were updated."""
    skipped_steps: Tensor
    """How many steps of the run, this one included, have not updated them."""


class LossScaler(nn.Cell):
    """Value and counters of the dynamic loss scale; state of the step cell, so that checkpoints hold them.

    The update is that of MindSpore's DynamicLossScaleManager. Its own overflow test exists on Ascend alone and is not used.
    """

    def __init__(self, loss_scale_value: float, scale_factor: float, scale_window: int):
        super().__init__()
        self.scale_sense = Parameter(Tensor(loss_scale_value, ms.float32), name="scale_sense", requires_grad=False)
        manager = DynamicLossScaleManager(loss_scale_value, scale_factor, scale_window)
        self.update_scale = manager.get_update_cell()

    def construct(self, overflow):
        return self.update_scale(self.scale_sense, overflow)


class TrainStep(nn.Cell):
    """Gradients, mean over ranks, overflow test, clipping, update, learning rate and loss scale of one step.

    The overflow test is the finiteness of the gradients' global norm: one infinity or NaN anywhere makes it non-finite. Such
    a step leaves weights and optimizer as they were and is counted; the global step, hence the learning rate and the data,
    goes on.

    Args:
        gradients: (tokens, scale) -> (mean loss, tuple of scaled gradients summed over `parts`); its `clear` ends the step.
        optimizer: called with (gradients, lr, finite); its `parameters` are the weights.
        learning_rates: (train_steps,) float32, the rate of each global step.
        reduce_gradients: sums a tuple of gradients over the data-parallel ranks.
        global_norm: of a tuple of gradients, over all ranks.
        mean_loss: averages a scalar over the ranks.
        parts: what the sums of gradients are divided by to be means.
        max_grad_norm: global norm that gradients are scaled down to, None: never.
        loss_scaler: dynamic scale for float16, None otherwise.

    Inputs: tokens (B, S + 1) int32, B the samples of this rank in a step. Outputs: the fields of `StepOutput`.
    """

    def __init__(
        self,
        gradients: nn.Cell,
        optimizer: nn.Cell,
        learning_rates: np.ndarray,
        reduce_gradients: nn.Cell,
        global_norm: nn.Cell,
        mean_loss: nn.Cell,
        parts: int = 1,
        max_grad_norm: float | None = None,
        loss_scaler: LossScaler | None = None,
    ):
        super().__init__(auto_prefix=False)
        self.gradients = gradients
        self.weights = optimizer.parameters
        self.optimizer = optimizer
        self.reduce_gradients = reduce_gradients
        self.global_norm = global_norm
        self.mean_loss = mean_loss
        self.loss_scaler = loss_scaler
        self.parts = float(parts)
        self.max_grad_norm = max_grad_norm
        self.learning_rates = Tensor(learning_rates)
        self.global_step = Parameter(Tensor(0, ms.int32), name="global_step", requires_grad=False)
        self.skipped_steps = Parameter(Tensor(0, ms.int32), name="skipped_steps", requires_grad=False)
        self.is_finite = P.IsFinite()
        self.assign_add = P.AssignAdd()
        self.gather = P.Gather()
        self.minimum = P.Minimum()

    def construct(self, tokens):
        scale = 1.0 if self.loss_scaler is None else self.loss_scaler.scale_sense + 0.0
        local_loss, gradients = self.gradients(tokens, scale)
        gradients = self.reduce_gradients(gradients)
        factor = 1.0 / (scale * self.parts)
        norm = self.global_norm(gradients) * factor
        finite = self.is_finite(norm)
        if self.max_grad_norm is not None:
            factor = factor * self.minimum(self.max_grad_norm / (norm + 1e-6), 1.0)
        lr = self.gather(self.learning_rates, self.global_step, 0)
        updated = self.optimizer([gradient * factor for gradient in gradients], lr, finite)
        overflow = ops.logical_not(finite)
        if self.loss_scaler is not None:
            self.loss_scaler(overflow)
        self.assign_add(self.global_step, 1)
        skipped = self.assign_add(self.skipped_steps, ops.cast(overflow, ms.int32))
        loss = self.gradients.clear(self.mean_loss(local_loss), updated)
        return loss, local_loss, norm, lr, scale, finite, skipped
