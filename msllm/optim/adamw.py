"""AdamW on MindSpore's fused kernel."""

from __future__ import annotations

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn, ops
from mindspore.ops import operations as P


class AdamW(nn.Cell):
    """Adam with decoupled weight decay and bias correction (Loshchilov and Hutter 2019, algorithm 2).

    MindSpore's `AdamWeightDecay` kernel is one pass over the weights, but leaves the bias correction out. It is put back
    through the kernel's scalars: with c1 = 1 - beta1^t and c2 = 1 - beta2^t,

        lr * (m / c1) / (sqrt(v / c2) + eps)  =  lr' * m / (sqrt(v) + eps')    lr' = lr sqrt(c2) / c1, eps' = eps sqrt(c2)
        lr * decay * w                        =  lr' * decay' * w              decay' = decay c1 / sqrt(c2)

    Weight decay applies to matrices; vectors (norms, biases) have none.

    Args:
        parameters: the weights, float32.
        betas, eps, weight_decay: as in the configuration.

    A step whose gradients are not finite changes nothing. It is turned into zeros rather than skipped by `if`: control flow
    around the update does not compile under pipeline parallel.

    Inputs: gradients, a tuple in the order of `parameters`; lr () float32; finite () bool, whether to update. Outputs: what
    the kernel returns for each, of use only to come after it. State: `adam_m.*`, `adam_v.*`, `adam_step`, the number of
    updates made, () float32.
    """

    def __init__(self, parameters, betas: tuple[float, float], eps: float, weight_decay: float):
        super().__init__(auto_prefix=False)
        self.parameters = ParameterTuple(parameters)
        self.moments1 = self.parameters.clone("adam_m", "zeros")
        self.moments2 = self.parameters.clone("adam_v", "zeros")
        self.step = Parameter(Tensor(0.0, ms.float32), name="adam_step", requires_grad=False)
        self.betas = betas
        self.eps = eps
        self.decays = tuple(weight_decay if len(p.shape) > 1 else 0.0 for p in self.parameters)
        self.beta1, self.beta2 = Tensor(betas[0], ms.float32), Tensor(betas[1], ms.float32)
        self.update = P.AdamWeightDecay()
        self.assign_add = P.AssignAdd()
        self.maximum = P.Maximum()
        self.masked_fill = P.MaskedFill()
        self.sqrt = P.Sqrt()
        self.pow = P.Pow()

    def construct(self, gradients, lr, finite):
        skip = ops.logical_not(finite)
        # A first step that is skipped must not divide by 1 - beta^0.
        step = self.maximum(self.assign_add(self.step, finite.astype(ms.float32)), 1.0)
        correction1 = 1.0 - self.pow(self.beta1, step)
        root2 = self.sqrt(1.0 - self.pow(self.beta2, step))
        rate = self.masked_fill(lr * root2 / correction1, skip, 0.0)
        beta1 = self.masked_fill(self.beta1, skip, 1.0)
        beta2 = self.masked_fill(self.beta2, skip, 1.0)
        eps = self.eps * root2
        decay_scale = correction1 / root2
        updated: tuple = ()
        for i in range(len(gradients)):
            decay = self.decays[i] * decay_scale
            gradient = self.masked_fill(gradients[i], skip, 0.0)
            parameter, m, v = self.parameters[i], self.moments1[i], self.moments2[i]
            updated += (self.update(parameter, m, v, rate, beta1, beta2, eps, decay, gradient),)
        return updated
