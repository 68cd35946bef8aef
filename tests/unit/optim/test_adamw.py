"""AdamW against its textbook form in NumPy, in float64."""

from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn

from msllm.optim.adamw import AdamW

SHAPES = {"matrix": (6, 5), "norm": (5,), "table": (3, 4), "bias": (4,)}
BETAS, EPS = (0.9, 0.95), 1e-8


def start_weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    return {name: random.normal(size=shape).astype(np.float32) for name, shape in SHAPES.items()}


def gradients_of(step: int) -> dict[str, np.ndarray]:
    """Different each step, from tiny to large."""
    random = np.random.default_rng(100 + step)
    return {
        name: (random.normal(size=shape) * 10.0 ** -(step % 5)).astype(np.float32) for name, shape in SHAPES.items()
    }


def adamw_in_numpy(weights: dict[str, np.ndarray], rates: list[float], eps: float, decay: float):
    """Loshchilov and Hutter 2019, algorithm 2, with the decay times the learning rate and only on matrices."""
    w = {name: value.astype(np.float64) for name, value in weights.items()}
    m = {name: np.zeros_like(value) for name, value in w.items()}
    v = {name: np.zeros_like(value) for name, value in w.items()}
    for t, rate in enumerate(rates, start=1):
        for name, g in gradients_of(t).items():
            g = g.astype(np.float64)
            m[name] = BETAS[0] * m[name] + (1 - BETAS[0]) * g
            v[name] = BETAS[1] * v[name] + (1 - BETAS[1]) * g * g
            update = (m[name] / (1 - BETAS[0] ** t)) / (np.sqrt(v[name] / (1 - BETAS[1] ** t)) + eps)
            if w[name].ndim > 1:
                update = update + decay * w[name]
            w[name] = w[name] - rate * update
    return w, m, v


class Stepper(nn.Cell):
    """The optimizer in a graph of its own."""

    def __init__(self, optimizer: AdamW):
        super().__init__(auto_prefix=False)
        self.optimizer = optimizer

    def construct(self, gradients, lr, finite):
        return self.optimizer(gradients, lr, finite)


def run_ours(rates: list[float], eps: float, decay: float, broken: tuple[int, ...] = ()) -> AdamW:
    """`broken` steps get gradients that are not finite."""
    parameters = [Parameter(Tensor(value), name=name) for name, value in start_weights().items()]
    optimizer = AdamW(parameters, BETAS, eps, decay)
    step = Stepper(optimizer)
    t = 0
    for number, rate in enumerate(rates):
        finite = number not in broken
        t += finite
        values = [value if finite else value * np.float32(np.nan) for value in gradients_of(max(t, 1)).values()]
        step(tuple(Tensor(value) for value in values), Tensor(rate, ms.float32), Tensor(finite))
    return optimizer


def test_ten_steps_equal_the_textbook():
    eps, decay = 1e-3, 0.1  # an eps that is felt among gradients down to 1e-4
    rates = [1e-2 * (1 + t % 3) for t in range(10)]
    ours = run_ours(rates, eps, decay)
    weights, m, v = adamw_in_numpy(start_weights(), rates, eps, decay)
    for parameter, moment1, moment2 in zip(ours.parameters, ours.moments1, ours.moments2, strict=True):
        name = parameter.name
        np.testing.assert_allclose(parameter.asnumpy(), weights[name], rtol=2e-6, atol=2e-6)
        np.testing.assert_allclose(moment1.asnumpy(), m[name], rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(moment2.asnumpy(), v[name], rtol=1e-5, atol=1e-9)
    assert float(ours.step.asnumpy()) == 10


@pytest.mark.parametrize("broken", [(0,), (0, 1), (2,), (1, 4)])
def test_a_step_that_is_not_finite_leaves_no_trace(broken: tuple[int, ...]):
    """Not in the weights, the moments or the count of updates, be it the first step of all or a later one."""
    rates = [1e-2 * (1 + t % 3) for t in range(5)]
    ours = run_ours(rates, 1e-3, 0.1, broken)
    clean = run_ours([rate for t, rate in enumerate(rates) if t not in broken], 1e-3, 0.1)
    for name in ("parameters", "moments1", "moments2"):
        for one, other in zip(getattr(ours, name), getattr(clean, name), strict=True):
            np.testing.assert_array_equal(one.asnumpy(), other.asnumpy())
    assert float(ours.step.asnumpy()) == 5 - len(broken)


def test_the_first_step_moves_every_weight_by_the_learning_rate():
    """What the bias correction is for: without it the first step is (1 - beta1) / sqrt(1 - beta2) times as long."""
    ours = run_ours([1e-2], EPS, 0.0)
    for parameter in ours.parameters:
        moved = np.abs(parameter.asnumpy() - start_weights()[parameter.name])
        np.testing.assert_allclose(moved, np.full_like(moved, 1e-2), rtol=1e-4)


def test_weight_decay_is_off_for_norms_and_biases():
    plain, decayed = run_ours([1e-2] * 3, EPS, 0.0), run_ours([1e-2] * 3, EPS, 0.5)
    for without, with_decay in zip(plain.parameters, decayed.parameters, strict=True):
        same = np.array_equal(without.asnumpy(), with_decay.asnumpy())
        assert same == (len(without.shape) == 1), without.name


def test_the_state_carries_the_names_that_checkpoints_use():
    names = {parameter.name for parameter in run_ours([1e-2], EPS, 0.1).get_parameters()}
    moments = {f"{kind}.{name}" for kind in ("adam_m", "adam_v") for name in SHAPES}
    assert names == moments | set(SHAPES) | {"adam_step"}
