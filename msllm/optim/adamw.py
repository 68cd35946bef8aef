"""AdamW on MindSpore's fused kernel."""

from __future__ import annotations

import mindspore as ms
from mindspore import Parameter, ParameterTuple, Tensor, nn
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

    Inputs: gradients, a tuple in the order of `parameters`; lr () float32. State: `adam_m.*`, `adam_v.*`, `adam_step`, the
    number of updates made, () float32.
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
        self.sqrt = P.Sqrt()
        self.pow = P.Pow()

    def construct(self, gradients, lr):
        step = self.assign_add(self.step, 1.0)
        correction1 = 1.0 - self.pow(self.beta1, step)
        root2 = self.sqrt(1.0 - self.pow(self.beta2, step))
        rate = lr * root2 / correction1
        eps = self.eps * root2
        decay_scale = correction1 / root2
        for i in range(len(gradients)):
            decay = self.decays[i] * decay_scale
            parameter, m, v = self.parameters[i], self.moments1[i], self.moments2[i]
            self.update(parameter, m, v, rate, self.beta1, self.beta2, eps, decay, gradients[i])
        return step
