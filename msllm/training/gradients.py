"""Loss and gradients of one step's batch, in one piece or in parts."""

from __future__ import annotations

from mindspore import ParameterTuple, nn, ops

_LEAST = float("-inf")


class LocalGradients(nn.Cell):
    """Forward and backward over the batch, in `parts` one after the other.

    Inputs: tokens (parts * B, S + 1) int32; scale, () float32 or 1.0, which the loss is multiplied by.
    Outputs: the mean loss, () float32, and the tuple of SUMS over the parts of the scaled gradients.
    """

    def __init__(self, network: nn.Cell, weights: ParameterTuple, parts: int = 1):
        super().__init__(auto_prefix=False)
        self.network = network
        self.weights = weights
        self.parts = parts
        # GradOperation rather than value_and_grad, whose wrapped function MindSpore's parallel pass cannot read.
        self.grad = ops.GradOperation(get_by_list=True, sens_param=True)

    def loss_and_gradients(self, tokens, scale):
        """The forward pass is written twice and computed once: the compiler finds it in the backward pass again."""
        loss = self.network(tokens)
        return loss, self.grad(self.network, self.weights)(tokens, ops.ones_like(loss) * scale)

    def construct(self, tokens, scale):
        if self.parts == 1:
            return self.loss_and_gradients(tokens, scale)
        size = tokens.shape[0] // self.parts
        loss, gradients = self.loss_and_gradients(tokens[:size], scale)
        for i in range(1, self.parts):
            next_loss, added = self.loss_and_gradients(tokens[i * size : (i + 1) * size], scale)
            loss = loss + next_loss
            gradients = [a + b for a, b in zip(gradients, added)]
        return loss / self.parts, gradients

    def clear(self, loss, updated):
        """Nothing is kept from step to step."""
        return loss


class MicroBatchGradients(LocalGradients):
    """Forward and backward over micro batches in MindSpore's parallel graphs: a pipeline, or accumulation without one.

    The framework adds each micro batch's gradients into `accu_grads.*`, which must be parameters of those names, and sums
    them over the data-parallel ranks once, after the last one. With the optimizer cut over ranks (ZeRO) the gradients that
    come back are the sums, elsewhere the parameters hold them.

    Inputs and outputs as `LocalGradients`; on a pipeline's last stage the loss is the mean, on the others 0.
    """

    def __init__(self, network: nn.Cell, weights: ParameterTuple, parts: int, optimizer_parallel: bool):
        super().__init__(network, weights, parts)
        self.optimizer_parallel = optimizer_parallel
        self.accu_grads = weights.clone(prefix="accu_grads", init="zeros")
        self.hyper_map = ops.HyperMap()

    def construct(self, tokens, scale):
        loss, gradients = self.loss_and_gradients(tokens, scale)
        if not self.optimizer_parallel:
            gradients = ops.depend(self.accu_grads, gradients)
        return loss / self.parts, gradients

    def clear(self, loss, updated):
        """`loss`, once the accumulated gradients have been set to zero, which happens after `updated` is there."""
        cleared = self.hyper_map(_set_to_zero, ops.depend(self.accu_grads, updated))
        return ops.depend(loss, cleared)


def _set_to_zero(accumulated):
    # Zeros that the compiler cannot know beforehand. zeros_like becomes a constant of the weight's size, which lies on the device
    # beside the sums and makes the MindIR of a 7B model larger than protobuf can write. Nothing is below -inf, NaN neither.
    below = ops.less(accumulated, _LEAST)
    return ops.assign(accumulated, below.astype(accumulated.dtype))
