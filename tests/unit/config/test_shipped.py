"""Every YAML that is shipped loads, and has the sizes that its name promises."""

from __future__ import annotations

from pathlib import Path

import pytest

from models.gpt2.config import Gpt2Config
from models.llama.config import LlamaConfig
from msllm.config.load import load_run_config
from msllm.registry import MODEL_CONFIGS

ROOT = Path(__file__).parents[3]
MODELS = sorted(ROOT.glob("models/*/configs/*.yaml"))
STRATEGIES = sorted(ROOT.glob("parallel_configs/*.yaml"))


def load(path: Path, parallel: Path | None = None):
    """The loaded configuration of a shipped file."""
    return load_run_config([path], parallel, [], MODEL_CONFIGS).config


def weights(model) -> int:
    """Number of weights, counted from the fields."""
    hidden, layers, vocab = model.hidden_size, model.num_hidden_layers, model.vocab_size
    if isinstance(model, LlamaConfig):
        kv = model.kv_heads * model.head_size
        block = 2 * hidden * hidden + 2 * hidden * kv + 3 * hidden * model.intermediate_size + 2 * hidden
        return vocab * hidden * (1 if model.tie_word_embeddings else 2) + layers * block + hidden
    assert isinstance(model, Gpt2Config)
    block = 4 * hidden * hidden + 4 * hidden + 2 * hidden * model.inner_size + model.inner_size + hidden + 4 * hidden
    return (vocab + model.max_position_embeddings) * hidden + layers * block + 2 * hidden


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_every_model_file_loads(path):
    assert load(path).model.model_type == path.parents[1].name


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama/configs/llama2_7b", 6_738_415_616),
        ("llama/configs/llama2_13b", 13_015_864_320),
        ("llama/configs/llama2_70b", 68_976_648_192),
        ("llama/configs/llama3_8b", 8_030_261_248),
        ("llama/configs/llama3_70b", 70_553_706_496),
        ("gpt2/configs/gpt2_124m", 124_439_808),
    ],
)
def test_published_models_have_their_published_number_of_weights(name, count):
    assert weights(load(ROOT / f"models/{name}.yaml").model) == count


@pytest.mark.parametrize("path", [*MODELS, *STRATEGIES], ids=lambda path: path.stem)
def test_every_line_with_a_value_says_what_it_is_for(path):
    for line in path.read_text().splitlines():
        if ": " in line and not line.startswith("#"):
            assert "  # " in line, line
