"""What each AMP level computes in which type, read from the graph that MindSpore compiled."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import mindspore as ms
import numpy as np
import pytest
import tiny_runs
from mindspore import Tensor

from msllm.errors import InputError
from msllm.registry import build_model
from msllm.training.amp import apply_amp
from msllm.training.loss import LanguageModelLoss

CASES = {
    "llama-O1": (tiny_runs.llama_config(), "O1"),
    "llama-O2": (tiny_runs.llama_config(), "O2"),
    "llama-O3": (tiny_runs.llama_config(), "O3"),
    "gpt2-O2": (tiny_runs.gpt2_config(), "O2"),
}
MATRIX_PRODUCTS = {"MatMul", "BatchMatMul"}
SHAPES_ONLY = {"Reshape", "Transpose", "StridedSlice", "Split", "Concat", "Cast", "Load", "Depend", "UpdateState"}


@dataclass(frozen=True)
class Node:
    """An operation of the graph: where in the network it stands, and the types of the tensors that go in and out."""

    op: str
    scope: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def inside(self, *names: str) -> bool:
        return any(name in self.scope for name in names)


def read_graph(file: Path) -> list[Node]:
    """Nodes of a graph after MindSpore's front end has typed, cast and optimized it."""
    lines = file.read_text().splitlines()
    nodes = []
    for number, line in enumerate(lines):
        made = re.match(r"\s+%\d+\(.*?\) = (?:PrimFunc_)?(\w+)\(", line)
        if made is None:
            continue
        types = lines[number + 1].rpartition("->")
        scope = next((text for text in lines[number + 2 : number + 4] if "Fullname with scope" in text), "")
        before, after = (tuple(re.findall(r"(Float\d+|BFloat16)\]", types[part])) for part in (0, 2))
        nodes.append(Node(made[1], scope, before, after))
    return nodes


def compile_all() -> None:
    """Compile model and loss of every case, in float16, in the order of CASES."""
    for config, level in CASES.values():
        network = LanguageModelLoss(apply_amp(build_model(config), level, "float16"))
        network(Tensor(np.ones((2, 17), np.int32)))


@pytest.fixture(scope="module")
def graphs(tmp_path_factory) -> dict[str, list[Node]]:
    """Case -> the nodes of its graph; from a process of its own, as MindSpore never stops to write graphs again."""
    folder = tmp_path_factory.mktemp("graphs")
    code = "import mindspore as ms; ms.set_context(mode=ms.GRAPH_MODE); import test_amp; test_amp.compile_all()"
    environment = tiny_runs.environment(
        MS_DEV_SAVE_GRAPHS="1", MS_DEV_SAVE_GRAPHS_PATH=str(folder), MS_DEV_DUMP_IR_PASSES="validate"
    )
    environment["PYTHONPATH"] += f":{Path(__file__).parent}"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    files = sorted(folder.rglob("*_validate_*.ir"), key=lambda file: int(file.stem.rpartition("_")[2]))
    assert len(files) == len(CASES)
    return {name: read_graph(file) for name, file in zip(CASES, files, strict=True)}


def types_of(nodes: list[Node]) -> set[str]:
    return {kind for node in nodes for kind in (*node.inputs, *node.outputs)}


def residual_adds(nodes: list[Node]) -> list[Node]:
    return [node for node in nodes if node.op == "Add" and re.search(r"(DecoderLayer|Block)/Add", node.scope)]


@pytest.mark.parametrize("case", CASES)
def test_every_matrix_product_is_in_the_compute_dtype(graphs, case: str):
    products = [node for node in graphs[case] if node.op in MATRIX_PRODUCTS]
    assert len(products) >= 8
    assert types_of(products) == {"Float16"}


@pytest.mark.parametrize("case", CASES)
def test_the_loss_is_in_float32(graphs, case: str):
    losses = [node for node in graphs[case] if "SoftmaxCrossEntropy" in node.op]
    assert losses and types_of(losses) == {"Float32"}


@pytest.mark.parametrize("case", ["llama-O1", "llama-O2", "gpt2-O2"])
def test_norms_and_softmax_are_in_float32(graphs, case: str):
    kept = [node for node in graphs[case] if node.inside("RMSNorm", "LayerNorm", "MaskedSoftmax")]
    kept = [node for node in kept if node.op not in SHAPES_ONLY]
    assert {"Softmax"} < {node.op for node in kept}
    assert types_of(kept) == {"Float32"}


def test_o1_leaves_the_residual_stream_in_float32(graphs):
    adds = residual_adds(graphs["llama-O1"])
    assert len(adds) == 2 and types_of(adds) == {"Float32"}


@pytest.mark.parametrize("case", ["llama-O2", "gpt2-O2"])
def test_o2_has_the_residual_stream_and_the_feed_forward_in_the_compute_dtype(graphs, case: str):
    activations = [node for node in graphs[case] if node.op in ("SiLU", "GeLU")]
    adds = residual_adds(graphs[case])
    assert len(activations) == 1 and len(adds) == 2
    assert types_of([*activations, *adds]) == {"Float16"}


def test_o3_has_the_softmax_in_the_compute_dtype_and_a_norms_sums_in_float32(graphs):
    softmax = [node for node in graphs["llama-O3"] if node.op == "Softmax"]
    assert softmax and types_of(softmax) == {"Float16"}
    sums = [node for node in graphs["llama-O3"] if node.op in ("ReduceMean", "Square", "Rsqrt")]
    assert sums and types_of(sums) == {"Float32"}


def loss_and_gradients(level: str, dtype: str):
    """Of the same weights and tokens at every level; also what the weights' types are."""
    ms.set_seed(1)
    model = apply_amp(build_model(tiny_runs.llama_config()), level, dtype)
    weights = ms.ParameterTuple(model.trainable_params())
    assert {weight.dtype for weight in weights} == {ms.float32}
    tokens = np.random.default_rng(0).integers(0, 64, (4, 17)).astype(np.int32)
    return ms.value_and_grad(LanguageModelLoss(model), None, weights)(Tensor(tokens))


@pytest.fixture(scope="module")
def exact():
    return loss_and_gradients("O0", "float32")


@pytest.mark.filterwarnings("error:overflow encountered")
@pytest.mark.parametrize("level", ["O2", "O3"])
def test_weights_and_gradients_are_float32_and_the_gradients_near_those_of_o0(exact, level: str):
    exact_loss, exact_gradients = exact
    loss, gradients = loss_and_gradients(level, "float16")
    assert loss.dtype == ms.float32
    assert float(loss.asnumpy()) == pytest.approx(float(exact_loss.asnumpy()), abs=2e-3)
    for gradient, wanted in zip(gradients, exact_gradients, strict=True):
        assert gradient.dtype == ms.float32
        wanted = wanted.asnumpy()
        assert np.linalg.norm(gradient.asnumpy() - wanted) < 0.02 * np.linalg.norm(wanted) + 1e-5


def test_float16_without_a_scaler_is_refused(tmp_path: Path):
    config = tiny_runs.write_config(tmp_path / "run.yaml", tmp_path / "data")
    with pytest.raises(InputError, match=r"compute_dtype \(float16\) needs loss_scale"):
        tiny_runs.load(config, "training.amp_level=O2", "training.compute_dtype=float16")
    tiny_runs.load(config, *tiny_runs.FLOAT16)
