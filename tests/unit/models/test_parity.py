"""Our models against Hugging Face's, number for number: see tests/golden/make_goldens.py for what the files hold."""

from __future__ import annotations

import json
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
from mindspore import Tensor, nn
from safetensors.numpy import load_file

from msllm.config.hugging_face import WeightMap
from msllm.config.sections import ModelConfig
from msllm.layers.loss import CrossEntropyLoss
from msllm.registry import MODEL_CONFIGS, build_model, weight_map

GOLDEN = Path(__file__).parents[2] / "golden"
CASES = sorted(path.stem for path in GOLDEN.glob("*.safetensors"))
LOGITS_ATOL = 1e-4
GRADIENT_RTOL = 1e-3
ROUNDING = 1e-7


@pytest.fixture(autouse=True, scope="module")
def graph_mode():
    before = ms.get_context("mode")
    ms.set_context(mode=ms.GRAPH_MODE)
    yield
    ms.set_context(mode=before)


class LossOfModel(nn.Cell):
    """Mean cross entropy of the model's logits. Inputs: input_ids and labels (B, S) int32. Outputs: ()."""

    def __init__(self, model: nn.Cell):
        super().__init__(auto_prefix=False)
        self.model = model
        self.loss = CrossEntropyLoss()

    def construct(self, input_ids, labels):
        logits = self.model(input_ids)
        return self.loss(logits.reshape((-1, logits.shape[-1])), labels.reshape((-1,)))


class LossAndGradients(nn.Cell):
    """The loss of `LossOfModel` and its gradient for each of the model's parameters, in one graph."""

    def __init__(self, model: nn.Cell):
        super().__init__(auto_prefix=False)
        self.step = ms.value_and_grad(LossOfModel(model), None, weights=ms.ParameterTuple(model.trainable_params()))

    def construct(self, input_ids, labels):
        return self.step(input_ids, labels)


def load_case(name: str) -> tuple[ModelConfig, dict[str, np.ndarray]]:
    fields = json.loads((GOLDEN / f"{name}.json").read_text())
    return MODEL_CONFIGS[fields["model_type"]].model_validate(fields), load_file(GOLDEN / f"{name}.safetensors")


def ours(arrays: dict[str, np.ndarray], prefix: str, names: WeightMap) -> dict[str, np.ndarray]:
    """The golden arrays under `prefix` by our names. Reshaping is linear, so gradients go the way of weights."""
    return names.from_hf({k.removeprefix(prefix): v for k, v in arrays.items() if k.startswith(prefix)})


def network(config: ModelConfig, weights: dict[str, np.ndarray]) -> nn.Cell:
    model = build_model(config)
    parameters = {parameter.name: parameter for parameter in model.trainable_params()}
    assert parameters.keys() == weights.keys()
    for name, parameter in parameters.items():
        assert parameter.shape == weights[name].shape, name
        parameter.set_data(Tensor(weights[name]))
    return model.set_train()


@pytest.mark.parametrize("name", CASES)
def test_logits_loss_and_every_gradient_equal_hugging_faces(name):
    config, golden = load_case(name)
    names = weight_map(config)
    model = network(config, ours(golden, "weight/", names))
    input_ids, labels = Tensor(golden["input_ids"]), Tensor(golden["labels"])

    logits = model(input_ids).asnumpy()
    assert logits.dtype == np.float32
    np.testing.assert_allclose(logits, golden["logits"], rtol=0, atol=LOGITS_ATOL)

    loss, gradients = LossAndGradients(model)(input_ids, labels)
    np.testing.assert_allclose(loss.asnumpy(), golden["loss"], rtol=1e-5)
    expected = ours(golden, "grad/", names)
    found = {p.name: g.asnumpy() for p, g in zip(model.trainable_params(), gradients, strict=True)}
    faults = [fault for key in expected if (fault := gradient_fault(key, found[key], expected[key]))]
    assert not faults, "\n".join(faults)


def gradient_fault(name: str, found: np.ndarray, expected: np.ndarray) -> str | None:
    """What is wrong with a gradient: far from the expected one as a whole, or in one element."""
    if name.endswith("k_proj.bias"):
        # It adds the same to all scores of a query and so nothing to the softmax: both are rounding errors around 0.
        largest = max(np.abs(found).max(), np.abs(expected).max())
        return None if largest < ROUNDING else f"{name}: {largest:.2e}, although it is 0 by construction"
    difference = found - expected
    whole = np.linalg.norm(difference) / np.linalg.norm(expected)
    element = np.abs(difference).max() / np.abs(expected).max()
    if whole <= GRADIENT_RTOL and element <= GRADIENT_RTOL:
        return None
    return f"{name}: off by {whole:.2e} of its norm, {element:.2e} of its largest element"


def test_goldens_are_of_use():
    """Logits far from zero, gradients of every weight, and both models in several forms."""
    for name in CASES:
        _, golden = load_case(name)
        assert np.abs(golden["logits"]).std() > 0.3, name
        for key in golden:
            if key.startswith("weight/"):
                assert np.abs(golden[key.replace("weight/", "grad/")]).max() > 1e-5, (name, key)
    assert sum(name.startswith("llama") for name in CASES) >= 6
    assert sum(name.startswith("gpt2") for name in CASES) >= 2
