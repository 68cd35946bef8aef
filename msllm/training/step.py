"""One optimizer step as one graph, the same on CPU and Ascend."""

from __future__ import annotations

from typing import NamedTuple

import mindspore as ms
import numpy as np
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore.amp import DynamicLossScaleManager
from mindspore.ops import operations as P

from msllm.layers.loss import CrossEntropyLoss


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


class LanguageModelLoss(nn.Cell):
    """Rows of S + 1 tokens -> loss of predicting each token from those before it.

    Inputs: tokens (B, S + 1) int32. Outputs: () float32.
    """

    def __init__(self, model: nn.Cell):
        super().__init__(auto_prefix=False)
        self.model = model
        self.loss = CrossEntropyLoss()
        self.reshape = P.Reshape()

    def construct(self, tokens):
        logits = self.model(tokens[:, :-1])
        logits = self.reshape(logits, (-1, logits.shape[-1]))
        labels = self.reshape(tokens[:, 1:], (-1,))
        # to_float is applied to `model` alone; the loss starts from float32 whatever comes out of it.
        return self.loss(logits.astype(ms.float32), labels)


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
    """Forward, backward, mean over ranks, overflow test, clipping, update, learning rate and loss scale of one step.

    The overflow test is the finiteness of the gradients' global norm: one infinity or NaN anywhere makes it non-finite. Such
    a step leaves weights and optimizer as they were; the global step, hence the learning rate and the data, goes on.

    Args:
        model: input_ids (B, S) -> logits (B, S, V).
        optimizer: called with (gradients, lr).
        learning_rates: (train_steps,) float32, the rate of each global step.
        reduce_gradients: sums a tuple of gradients over the data-parallel ranks.
        mean_loss: averages a scalar over the ranks.
        data_parallel: number of ranks.
        gradient_accumulation_steps: parts that the batch is computed in, one after the other.
        max_grad_norm: global norm that gradients are scaled down to, None: never.
        loss_scaler: dynamic scale for float16, None otherwise.

    Inputs: tokens (A * B, S + 1) int32, A = gradient_accumulation_steps. Outputs: the fields of `StepOutput`.
    """

    def __init__(
        self,
        model: nn.Cell,
        optimizer: nn.Cell,
        learning_rates: np.ndarray,
        reduce_gradients: nn.Cell,
        mean_loss: nn.Cell,
        data_parallel: int = 1,
        gradient_accumulation_steps: int = 1,
        max_grad_norm: float | None = None,
        loss_scaler: LossScaler | None = None,
    ):
        super().__init__(auto_prefix=False)
        self.network = LanguageModelLoss(model)
        self.network.set_train()
        self.weights = ParameterTuple(model.trainable_params())
        self.optimizer = optimizer
        self.reduce_gradients = reduce_gradients
        self.mean_loss = mean_loss
        self.loss_scaler = loss_scaler
        self.accumulation = gradient_accumulation_steps
        self.parts = float(data_parallel * gradient_accumulation_steps)
        self.max_grad_norm = max_grad_norm
        self.learning_rates = Tensor(learning_rates)
        self.global_step = Parameter(Tensor(0, ms.int32), name="global_step", requires_grad=False)
        self.value_and_grad = ops.value_and_grad(self.scaled_loss, None, self.weights, has_aux=True)
        self.l2_loss = P.L2Loss()
        self.is_finite = P.IsFinite()
        self.assign_add = P.AssignAdd()
        self.gather = P.Gather()
        self.sqrt = P.Sqrt()
        self.minimum = P.Minimum()

    def scaled_loss(self, tokens, scale):
        """Loss times the loss scale, which is differentiated, and the loss itself."""
        loss = self.network(tokens)
        return loss * scale, loss

    def loss_and_gradients(self, tokens, scale):
        """Mean loss of the local batch and the SUM over its parts of the scaled gradients."""
        part = tokens.shape[0] // self.accumulation
        (_, loss), gradients = self.value_and_grad(tokens[:part], scale)
        for i in range(1, self.accumulation):
            (_, next_loss), added = self.value_and_grad(tokens[i * part : (i + 1) * part], scale)
            loss = loss + next_loss
            gradients = self.add_all(gradients, added)
        return loss / self.accumulation, gradients

    def add_all(self, left, right):
        """Elementwise sums of two lists."""
        return [a + b for a, b in zip(left, right)]

    def scale_all(self, gradients, factor):
        """Every gradient times one factor."""
        return [gradient * factor for gradient in gradients]

    def norm(self, gradients):
        """Global L2 norm: () float32."""
        total = self.l2_loss(gradients[0])
        for gradient in gradients[1:]:
            total = total + self.l2_loss(gradient)
        return self.sqrt(2.0 * total)

    def construct(self, tokens):
        scale = 1.0 if self.loss_scaler is None else self.loss_scaler.scale_sense + 0.0
        local_loss, gradients = self.loss_and_gradients(tokens, scale)
        gradients = self.reduce_gradients(gradients)
        factor = 1.0 / (scale * self.parts)
        norm = self.norm(gradients) * factor
        finite = self.is_finite(norm)
        if self.max_grad_norm is not None:
            factor = factor * self.minimum(self.max_grad_norm / (norm + 1e-6), 1.0)
        lr = self.gather(self.learning_rates, self.global_step, 0)
        if finite:
            self.optimizer(self.scale_all(gradients, factor), lr)
        if self.loss_scaler is not None:
            self.loss_scaler(ops.logical_not(finite))
        self.assign_add(self.global_step, 1)
        return self.mean_loss(local_loss), local_loss, norm, lr, scale, finite
