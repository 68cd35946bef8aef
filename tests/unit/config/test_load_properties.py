"""Loading holds for any input: valid ones survive writing and reading, all others are InputErrors."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from models.llama.config import LlamaConfig
from msllm.config.load import load_run_config, write_resolved
from msllm.config.yaml_text import dump_yaml
from msllm.errors import InputError
from msllm.registry import MODEL_CONFIGS

TINY = Path(__file__).parents[3] / "models/llama/configs/llama_tiny.yaml"

NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
POSITIVE = st.integers(1, 1000)
LR = st.floats(1e-12, 10.0)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None)
@given(NAMES, LR, st.tuples(st.floats(0, 0.99), st.floats(0, 0.99)), POSITIVE, st.integers(0, 2**32 - 1), st.booleans())
def test_any_valid_config_survives_writing_and_loading(tmp_path, name, lr, betas, layers, seed, shuffle):
    values = {
        "model": {
            "model_type": "llama",
            "vocab_size": layers,
            "hidden_size": 8,
            "intermediate_size": 8,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "max_position_embeddings": 64,
            "rope_scaling": {"rope_type": "linear", "factor": lr} if shuffle else None,
        },
        "data": {"train_dataset": name, "seq_length": 64, "shuffle": shuffle},
        "optimizer": {"learning_rate": lr, "betas": list(betas)},
        "training": {"train_steps": layers, "global_batch_size": 4, "seed": seed},
    }
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    first.write_text(dump_yaml(values))
    config = load_run_config([first], None, [], MODEL_CONFIGS).config
    write_resolved(config, second)
    assert load_run_config([second], None, [], MODEL_CONFIGS).config == config
    assert (config.data.train_dataset, config.optimizer.learning_rate) == (name, lr)


# Words that steer random text towards the inside of the loader.
WORDS = st.sampled_from(
    [
        "model:",
        "data:",
        "training:",
        "optimizer:",
        "parallel_config:",
        "model_type:",
        "llama",
        "gpt2",
        "betas:",
        "loss_scale:",
        "rope_scaling:",
        "\n",
        "\n\n",
        "",
        "",
        "-",
        "[",
        "]",
        "{",
        "}",
        "&",
        "*",
        "<<",
        ":",
        "#",
        "'",
        '"',
        "|",
        ">",
        "!",
        "%",
        "@",
        "`",
        ",",
        "?",
        "~",
        "null",
        "true",
        "1",
        "-1",
        "0",
        "1e9",
        ".inf",
        "&a",
        "*a",
        "<<:",
        "---",
        "...",
        "\t",
        "\x00",
        "ÿ",
        "\u2028",
        "é",
    ]
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150, deadline=None)
@given(st.lists(WORDS | st.text(max_size=4), max_size=25).map(" ".join) | st.binary(max_size=60))
def test_no_text_whatever_gives_anything_but_a_config_or_an_input_error(tmp_path, text):
    path = tmp_path / "any.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text)
    try:
        load_run_config([path], path, [str(text)], MODEL_CONFIGS)
    except InputError as error:
        assert error.problems


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.sampled_from(
    [f"model.{key}" for key in LlamaConfig.model_fields]
    + ["model.rope_scaling.factor", "data.seq_length", "optimizer.betas", "training.loss_scale", "training.chip"]
    + ["training.loss_scale.scale_factor", "parallel_config.model_parallel", "parallel_config.pipeline_stage"]
    + ["lr_schedule.total_steps", "training.global_batch_size", "checkpoint.keep_every", "lr_schedule.type"]
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(FIELDS, VALUES, max_size=4))
def test_no_value_whatever_gives_anything_but_a_config_or_an_input_error(values):
    overrides = tuple(f"{path}={dump_yaml([value])}" for path, value in values.items())
    overrides += tuple(f"{path}={dump_yaml(value)}" for path, value in values.items() if not isinstance(value, str))
    for override in overrides:
        try:
            load_run_config([TINY], None, [override], MODEL_CONFIGS)
        except InputError as error:
            assert error.problems
