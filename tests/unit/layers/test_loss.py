from __future__ import annotations

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor

from msllm.layers.loss import CrossEntropyLoss, TokenLoss


def case(seed: int = 0, tokens: int = 33, vocab: int = 64) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    logits = (random.normal(size=(tokens, vocab)) * 3).astype(np.float32)
    return logits, random.integers(0, vocab, tokens).astype(np.int32)


def token_losses(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    x = logits.astype(np.float64)
    x = x - x.max(-1, keepdims=True)
    return np.log(np.exp(x).sum(-1)) - x[np.arange(len(labels)), labels]


def test_both_losses_equal_the_definition():
    logits, labels = case()
    wanted = token_losses(logits, labels)
    np.testing.assert_allclose(TokenLoss()(Tensor(logits), Tensor(labels)).asnumpy(), wanted, rtol=1e-5, atol=1e-6)
    mean = float(CrossEntropyLoss()(Tensor(logits), Tensor(labels)).asnumpy())
    assert mean == pytest.approx(wanted.mean(), rel=1e-6)


def test_the_mean_of_token_losses_is_the_training_loss():
    """Evaluation and training report the same quantity."""
    logits, labels = case(seed=1, tokens=256)
    mean = float(CrossEntropyLoss()(Tensor(logits), Tensor(labels)).asnumpy())
    each = TokenLoss()(Tensor(logits), Tensor(labels)).asnumpy()
    assert each.mean() == pytest.approx(mean, rel=1e-6)


def test_large_logits_give_a_finite_loss():
    logits, labels = case()
    logits[:, 0] = 3e4
    each = TokenLoss()(Tensor(logits), Tensor(labels)).asnumpy()
    assert np.isfinite(each).all()
    assert each[labels != 0] == pytest.approx(token_losses(logits, labels)[labels != 0], rel=1e-5)


def test_token_losses_of_float16_logits_are_float32():
    logits, labels = case()
    each = TokenLoss()(Tensor(logits, ms.float16), Tensor(labels))
    assert each.dtype == ms.float32
    np.testing.assert_allclose(each.asnumpy(), token_losses(logits.astype(np.float16), labels), rtol=1e-5, atol=1e-6)


def test_the_gradient_is_softmax_minus_one_hot():
    logits, labels = case()
    gradient = ms.grad(CrossEntropyLoss())(Tensor(logits), Tensor(labels)).asnumpy()
    x = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    wanted = (x / x.sum(-1, keepdims=True) - np.eye(64)[labels]) / len(labels)
    np.testing.assert_allclose(gradient, wanted, atol=1e-7)
