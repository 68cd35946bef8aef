from __future__ import annotations

import gc
from functools import cache

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from mindspore.ops import operations as P

from msllm.layers.embedding import Embedding
from msllm.layers.linear import Linear
from msllm.layers.norm import RMSNorm
from msllm.optim.adamw import AdamW
from msllm.parallel.reduce import GlobalNorm, GradientSum, MeanOverRanks
from msllm.training.amp import apply_amp
from msllm.training.build import get_tensors
from msllm.training.gradients import LocalGradients
from msllm.training.loss import LanguageModelLoss
from msllm.training.step import LossScaler, StepOutput, TrainStep

VOCAB, HIDDEN, BATCH, LENGTH, STEPS = 16, 8, 8, 5, 12
BETA1, BETA2 = 0.9, 0.95
RATES = np.linspace(1e-2, 1e-3, STEPS, dtype=np.float32)
TOO_LARGE = 2.0**40
"""A loss scale that float16 gradients cannot bear."""


class Bigram(nn.Cell):
    """The smallest language model: embedding, norm, projection. (B, S) int32 -> (B, S, V)."""

    def __init__(self):
        super().__init__()
        self.embedding = Embedding(VOCAB, HIDDEN, "normal")
        self.norm = RMSNorm(HIDDEN, 1e-5)
        self.head = Linear(HIDDEN, VOCAB, "normal")
        self.reshape = P.Reshape()

    def construct(self, input_ids):
        batch, length = input_ids.shape
        x = self.norm(self.reshape(self.embedding(input_ids), (batch * length, HIDDEN)))
        return self.reshape(self.head(x), (batch, length, VOCAB))


def make_model() -> Bigram:
    model = Bigram()
    random = np.random.default_rng(0)
    for parameter in model.get_parameters():
        parameter.set_data(Tensor(random.normal(size=parameter.shape) * 0.5, ms.float32))
    return model


def make_step(
    scaler: LossScaler | None = None,
    accumulation: int = 1,
    max_grad_norm: float | None = None,
    ranks: int = 1,
    reduce_gradients: nn.Cell | None = None,
) -> TrainStep:
    """The step cell; float16 where there is a scaler."""
    gc.collect()  # see cpu_device in conftest.py
    model = make_model()
    if scaler is not None:
        apply_amp(model, "O2", "float16")
    weights = ms.ParameterTuple(model.trainable_params())
    return TrainStep(
        LocalGradients(LanguageModelLoss(model), weights, accumulation),
        AdamW(weights, (BETA1, BETA2), 1e-8, 0.1),
        RATES,
        reduce_gradients or GradientSum(1),
        GlobalNorm([1] * len(weights)),
        MeanOverRanks(1),
        ranks * accumulation,
        max_grad_norm,
        scaler,
    )


def batch(seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).integers(0, VOCAB, (BATCH, LENGTH + 1)).astype(np.int32))


def run(step: TrainStep, tokens: Tensor | None = None) -> dict[str, float]:
    output = StepOutput(*step(tokens if tokens is not None else batch()))
    return {name: float(np.asarray(getattr(output, name))) for name in StepOutput._fields}


def state(step: TrainStep) -> dict[str, np.ndarray]:
    weights, rest = get_tensors(step)
    return {name: np.array(value) for name, value in (weights | rest).items()}


def changed(before: dict[str, np.ndarray], after: dict[str, np.ndarray]) -> set[str]:
    return {name for name in before if not np.array_equal(before[name], after[name], equal_nan=True)}


@cache
def gradients() -> dict[str, np.ndarray]:
    """Of the mean loss of the whole batch, by MindSpore itself."""
    model = make_model()
    weights = ms.ParameterTuple(model.trainable_params())
    _, found = ms.value_and_grad(LanguageModelLoss(model), None, weights)(batch())
    return {weight.name: gradient.asnumpy() for weight, gradient in zip(weights, found, strict=True)}


def global_norm(arrays) -> float:
    return float(np.sqrt(sum((array.astype(np.float64) ** 2).sum() for array in arrays)))


def first_gradients(after: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What the optimizer was given in the first step: its first moment is 1 - beta1 of it."""
    return {
        name.removeprefix("adam_m."): value / (1 - BETA1) for name, value in after.items() if name.startswith("adam_m.")
    }


@cache
def plain() -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Outputs of a first step without anything special, and the state after it."""
    step = make_step()
    return run(step), state(step)


def test_a_step_gives_the_optimizer_the_gradient_of_the_mean_loss():
    output, after = plain()
    wanted = gradients()
    for name, value in first_gradients(after).items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-7)
    assert output["grad_norm"] == pytest.approx(global_norm(wanted.values()), rel=1e-5)
    assert output["finite"] and output["loss"] == output["local_loss"] and output["loss_scale"] == 1
    assert output["skipped_steps"] == after["skipped_steps"] == 0


def test_the_learning_rate_is_that_of_the_global_step():
    step = make_step()
    assert [run(step)["lr"] for _ in range(STEPS)] == RATES.tolist()
    assert int(state(step)["global_step"]) == STEPS


def test_gradients_beyond_the_limit_are_scaled_to_exactly_the_limit():
    free = plain()[0]["grad_norm"]
    limit = free / 10
    step = make_step(max_grad_norm=limit)
    assert run(step)["grad_norm"] == pytest.approx(free, rel=1e-6)  # told before clipping
    given = first_gradients(state(step))
    assert global_norm(given.values()) == pytest.approx(limit, rel=1e-4)
    for name, wanted in gradients().items():
        np.testing.assert_allclose(given[name], wanted / 10, rtol=1e-4, atol=1e-8)


def test_gradients_below_the_limit_are_left_alone():
    step = make_step(max_grad_norm=1e3)
    assert run(step) == plain()[0]
    assert changed(plain()[1], state(step)) == set()


def test_accumulation_equals_the_whole_batch():
    step = make_step(accumulation=4)
    assert run(step) == pytest.approx(plain()[0], rel=1e-5)
    for name, wanted in first_gradients(plain()[1]).items():
        np.testing.assert_allclose(first_gradients(state(step))[name], wanted, rtol=1e-5, atol=1e-7)


class Double(nn.Cell):
    """The sum over two ranks that have the same gradients."""

    def construct(self, gradients):
        return [gradient * 2 for gradient in gradients]


def test_the_sum_over_ranks_is_divided_by_their_number():
    step = make_step(ranks=2, reduce_gradients=Double())
    assert run(step) == pytest.approx(plain()[0], rel=1e-6)
    assert changed(plain()[1], state(step)) == set()


def test_an_overflow_leaves_weights_and_moments_as_they_were_and_halves_the_scale():
    step = make_step(LossScaler(TOO_LARGE, 2.0, 1000))
    before = state(step)
    output = run(step)
    after = state(step)
    assert not output["finite"] and not np.isfinite(output["grad_norm"])
    assert np.isfinite(output["loss"])
    assert output["loss_scale"] == TOO_LARGE
    assert after["scale_sense"] == TOO_LARGE / 2
    untouched = {name for name in before if name.startswith(("adam_", "embedding", "norm", "head"))}
    assert len(untouched) == 3 * 3 + 1
    assert changed(before, after) & untouched == set()
    assert int(after["global_step"]) == 1  # time goes on: the next batch, the next learning rate


def test_the_scale_falls_until_it_fits_and_training_goes_on():
    step = make_step(LossScaler(TOO_LARGE, 16.0, 1000))
    outputs = [run(step, batch(seed)) for seed in range(STEPS)]
    overflows = [not output["finite"] for output in outputs]
    assert overflows[0] and not overflows[-1] and overflows == sorted(overflows, reverse=True)
    scales = [output["loss_scale"] for output in outputs]
    assert scales == [TOO_LARGE / 16.0 ** min(i, sum(overflows)) for i in range(STEPS)]
    assert float(state(step)["adam_step"]) == STEPS - sum(overflows)
    assert [output["skipped_steps"] for output in outputs] == [min(i + 1, sum(overflows)) for i in range(STEPS)]
    assert [output["lr"] for output in outputs] == RATES.tolist()


def test_the_scale_doubles_after_a_window_of_clean_steps():
    step = make_step(LossScaler(4.0, 2.0, 3))
    assert [run(step)["loss_scale"] for _ in range(8)] == [4, 4, 4, 8, 8, 8, 16, 16]


def test_the_loss_scale_does_not_change_the_gradient():
    step = make_step(LossScaler(2.0**12, 2.0, 1000))
    assert run(step)["grad_norm"] == pytest.approx(plain()[0]["grad_norm"], rel=1e-2)
    for name, value in first_gradients(state(step)).items():
        np.testing.assert_allclose(value, gradients()[name], rtol=2e-2, atol=1e-4)


def test_a_broken_weight_is_noticed_and_no_other_number_is_updated():
    """The broken number itself may change from infinite to NaN, as it is multiplied by 0."""
    step = make_step(max_grad_norm=1.0)
    weight = step.weights[2]
    for poison in (np.nan, np.inf, -np.inf):
        value = weight.asnumpy().copy()
        value.flat[3] = poison
        weight.set_data(Tensor(value))
        before = state(step)
        output = run(step)
        assert not output["finite"] and not np.isfinite(output["loss"])
        after = state(step)
        broken = after[weight.name].flat[3]
        assert not np.isfinite(broken)
        before[weight.name].flat[3] = broken
        assert changed(before, after) == {"global_step", "skipped_steps"}


def test_the_state_of_the_loss_scale_is_part_of_the_state():
    names = set(state(make_step(LossScaler(4.0, 2.0, 3))))
    assert {"scale_sense", "global_step", "adam_step"} < names
    assert {"update_scale.cur_iter", "update_scale.last_overflow_iter"} < names
