from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Parameter, Tensor, nn
from mindspore.ops import operations as P

from msllm.layers.norm import LayerNorm, RMSNorm
from msllm.training.amp import apply_amp

H = 64


class OneNorm(nn.Cell):
    """A network that is one norm, as `apply_amp` takes it."""

    def __init__(self, norm: nn.Cell):
        super().__init__()
        self.norm = norm

    def construct(self, x):
        return self.norm(x)


class WeightedSum(nn.Cell):
    """A scalar that depends on every output."""

    def __init__(self, network: nn.Cell, weights: Tensor):
        super().__init__()
        self.network, self.weights = network, weights

    def construct(self, x):
        return (self.network(x) * self.weights).sum()


class NaiveRMSNorm(nn.Cell):
    """RMSNorm as it is often written: right in float32."""

    def __init__(self):
        super().__init__()
        self.weight = Parameter(Tensor(np.ones(H, np.float32)), name="weight")
        self.mean = P.ReduceMean(keep_dims=True)
        self.square = P.Square()
        self.rsqrt = P.Rsqrt()

    def construct(self, x):
        return x * self.rsqrt(self.mean(self.square(x), -1) + 1e-5) * self.weight


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    x = x.astype(np.float64)
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * weight


def large_activations() -> np.ndarray:
    """(5, H) around +-300: their squares are beyond float16, whose largest number is 65504."""
    random = np.random.default_rng(0)
    return (random.choice([-1, 1], (5, H)) * random.uniform(250, 350, (5, H))).astype(np.float32)


def test_rms_norm_equals_its_definition():
    random = np.random.default_rng(1)
    x, weight = random.normal(size=(7, H)).astype(np.float32), random.normal(size=H).astype(np.float32)
    norm = RMSNorm(H, 1e-5)
    norm.weight.set_data(Tensor(weight))
    np.testing.assert_allclose(norm(Tensor(x)).asnumpy(), rms_norm(x, weight, 1e-5), rtol=1e-5, atol=1e-6)


def test_layer_norm_equals_its_definition():
    random = np.random.default_rng(2)
    x, weight, bias = random.normal(size=(7, H)), random.normal(size=H), random.normal(size=H)
    norm = LayerNorm(H, 1e-5)
    norm.weight.set_data(Tensor(weight, ms.float32))
    norm.bias.set_data(Tensor(bias, ms.float32))
    wanted = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(norm(Tensor(x, ms.float32)).asnumpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3"])
@pytest.mark.parametrize("norm", [RMSNorm, LayerNorm])
def test_activations_of_300_pass_a_norm_unharmed(norm: type, level: str):
    """At O3 the norm's input and output are float16, its sums are not."""
    x = large_activations()
    network = apply_amp(OneNorm(norm(H, 1e-5)), level, "float32" if level == "O0" else "float16")
    out = network(Tensor(x)).astype(ms.float32).asnumpy()
    centred = x - x.mean(-1, keepdims=True) if norm is LayerNorm else x
    np.testing.assert_allclose(out, rms_norm(centred, np.ones(H), 1e-5), rtol=3e-3, atol=3e-3)


def test_gradients_of_300_pass_rms_norm_unharmed():
    x = large_activations()
    network = apply_amp(OneNorm(RMSNorm(H, 1e-5)), "O2", "float16")
    up = np.arange(H)
    gradient = ms.grad(WeightedSum(network, Tensor(up, ms.float32)))(Tensor(x)).asnumpy()
    rms = np.sqrt((x.astype(np.float64) ** 2).mean(-1, keepdims=True))
    wanted = up / rms - x * (up * x).mean(-1, keepdims=True) / rms**3
    np.testing.assert_allclose(gradient, wanted, rtol=2e-2, atol=2e-4)


def test_the_frameworks_own_o2_turns_a_plain_rms_norm_into_zeros():
    """Why `apply_amp` exists. Should this fail one day, MindSpore has mended its list and ours may go."""
    x = Tensor(large_activations())
    plain = OneNorm(NaiveRMSNorm())
    assert np.abs(plain(x).asnumpy()).min() > 0.5
    theirs = ms.amp.auto_mixed_precision(OneNorm(NaiveRMSNorm()), "O2", ms.float16)
    assert (theirs(x).asnumpy() == 0).all()
