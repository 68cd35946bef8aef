"""The Hugging Face tables of the models: names, shapes and the fields of config.json, without MindSpore."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from msllm.errors import InputError
from msllm.registry import MODEL_CONFIGS, config_from_hf, config_to_hf, weight_map

GOLDEN = Path(__file__).parents[2] / "golden"
MODELS = Path(__file__).parents[3] / "models"
CASES = sorted(path.stem for path in GOLDEN.glob("*.safetensors"))
LLAMA = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
GPT2 = {"model_type": "gpt2", "vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 16}


def golden_config(name: str):
    fields = json.loads((GOLDEN / f"{name}.json").read_text())
    return MODEL_CONFIGS[fields["model_type"]].model_validate(fields)


def golden_weights(name: str) -> dict[str, np.ndarray]:
    arrays = load_file(GOLDEN / f"{name}.safetensors")
    return {k.removeprefix("weight/"): v for k, v in arrays.items() if k.startswith("weight/")}


@pytest.mark.parametrize("name", CASES)
def test_the_table_names_every_tensor_of_hugging_face_with_its_shape(name):
    theirs = golden_weights(name)
    assert {t.hf_name: t.hf_shape for t in weight_map(golden_config(name)).tensors} == {
        key: array.shape for key, array in theirs.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_weights_go_to_our_form_and_back_bit_for_bit(name):
    table, theirs = weight_map(golden_config(name)), golden_weights(name)
    ours = table.from_hf(theirs)
    assert {key: array.shape for key, array in ours.items()} == table.shapes()
    back = table.to_hf(ours)
    assert back.keys() == theirs.keys()
    for key, array in theirs.items():
        assert back[key].tobytes() == array.tobytes(), key


def test_gpt2s_fused_matrix_is_cut_into_query_key_and_value_and_turned():
    table = weight_map(config_from_hf(GPT2)[0])
    theirs = {t.hf_name: np.arange(np.prod(t.hf_shape)).reshape(t.hf_shape) for t in table.tensors}
    ours = table.from_hf(theirs)
    fused = theirs["transformer.h.1.attn.c_attn.weight"]
    assert np.array_equal(ours["transformer.h.1.attn.k_proj.weight"], fused[:, 32:64].T)
    assert np.array_equal(ours["transformer.h.1.attn.v_proj.bias"], theirs["transformer.h.1.attn.c_attn.bias"][64:])
    assert all(array.flags.c_contiguous for array in ours.values())


@pytest.mark.parametrize("name", CASES)
def test_a_config_goes_to_hugging_face_and_back(name):
    config = golden_config(name)
    back, left_out = config_from_hf(json.loads(json.dumps(config_to_hf(config))))
    assert left_out == []
    assert weight_map(back) == weight_map(config)
    resolved = {"num_key_value_heads", "head_dim"}  # written out, where ours may say null
    assert back.model_dump(exclude=resolved) == config.model_dump(exclude=resolved)


@pytest.mark.parametrize("folder", ["hf_llama", "hf_gpt2"])
def test_the_config_that_transformers_wrote_is_read(folder):
    hf = json.loads((GOLDEN / folder / "config.json").read_text())
    config, left_out = config_from_hf(hf)
    case = {"hf_llama": "llama_gqa", "hf_gpt2": "gpt2_odd_vocab"}[folder]
    assert weight_map(config) == weight_map(golden_config(case))
    assert left_out == []


def test_hugging_faces_defaults_hold_where_config_json_is_silent():
    llama, _ = config_from_hf(LLAMA)
    assert llama.rms_norm_eps == 1e-6
    assert llama.max_position_embeddings == 2048
    gpt2, _ = config_from_hf({k: v for k, v in GPT2.items() if k != "n_positions"})
    assert gpt2.max_position_embeddings == 1024


@pytest.mark.parametrize(
    ("fields", "theta", "kind"),
    [
        ({}, 10000.0, None),
        ({"rope_theta": 5e5, "rope_scaling": None}, 5e5, None),
        ({"rope_scaling": {"type": "linear", "factor": 2.0}}, 10000.0, "linear"),
        ({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 5e5, "llama3"),
        ({"rope_scaling": {"rope_type": "linear", "type": "linear", "factor": 2.0}}, 10000.0, "linear"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, 5e5, None),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 4.0}}, 5e5, "linear"),
    ],
)
def test_every_form_of_the_rotary_fields_is_read(fields, theta, kind):
    config, _ = config_from_hf(LLAMA | fields)
    assert config.rope_theta == theta
    assert (config.rope_scaling and config.rope_scaling.rope_type) == kind


def test_everything_that_our_llama_does_not_compute_is_refused_at_once():
    hf = LLAMA | {
        "hidden_act": "gelu",
        "attention_bias": True,
        "mlp_bias": True,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
        "quantization_config": {"bits": 4},
        "hidden_size": "32",
    }
    with pytest.raises(InputError) as error:
        config_from_hf(hf, "some/config.json")
    text = str(error.value)
    assert len(error.value.problems) == 6
    for part in ("hidden_act ('gelu')", "attention_bias", "mlp_bias", "'yarn'", "quantization_config", "hidden_size"):
        assert part in text
    assert all(str(problem).startswith("some/config.json: ") for problem in error.value.problems)


def test_everything_that_our_gpt2_does_not_compute_is_refused_at_once():
    hf = GPT2 | {"activation_function": "relu", "scale_attn_by_inverse_layer_idx": True, "n_head": 5}
    with pytest.raises(InputError) as error:
        config_from_hf(hf)
    text = str(error.value)
    assert len(error.value.problems) == 3
    assert "activation_function ('relu') is not supported, only 'gelu_new' or 'gelu_pytorch_tanh'" in text
    assert "scale_attn_by_inverse_layer_idx" in text
    assert "num_attention_heads (5)" in text


@pytest.mark.parametrize("kind", [None, "mistral", ["llama"]])
def test_another_model_type_is_refused_with_the_legal_ones(kind):
    with pytest.raises(InputError, match=r"model_type .* must be one of gpt2, llama"):
        config_from_hf(LLAMA | {"model_type": kind})


def test_a_missing_size_is_named_in_hugging_faces_words():
    with pytest.raises(InputError, match="n_embd"):
        config_from_hf({k: v for k, v in GPT2.items() if k != "n_embd"})


@pytest.mark.parametrize(
    "rope", ["linear", 3, [1], {"rope_type": ["linear"]}, {"factor": 2.0, "rope_type": "linear", "beta": 1}]
)
def test_rotary_fields_of_a_wrong_form_are_a_users_mistake(rope):
    with pytest.raises(InputError, match="rope_scaling"):
        config_from_hf(LLAMA | {"rope_scaling": rope})


def test_fields_without_a_counterpart_are_told():
    _, left_out = config_from_hf(GPT2 | {"attn_pdrop": 0.1, "embd_pdrop": 0.0, "n_ctx": 16, "my_note": "x"})
    assert left_out == ["attn_pdrop", "my_note"]


def test_the_tables_load_without_mindspore():
    code = (
        "import sys; from msllm.registry import config_from_hf, weight_map;"
        f"weight_map(config_from_hf({LLAMA!r})[0]); weight_map(config_from_hf({GPT2!r})[0]);"
        "assert 'mindspore' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("path", sorted(MODELS.glob("*/configs/*.yaml")), ids=lambda path: path.stem)
def test_the_readme_states_the_size_of_every_shipped_configuration(path):
    fields = yaml.safe_load(path.read_text())["model"]
    config = MODEL_CONFIGS[fields["model_type"]].model_validate(fields)
    count = sum(math.prod(shape) for shape in weight_map(config).shapes().values())
    readme = (path.parents[1] / "README.md").read_text()
    assert f"| [{path.stem}](configs/{path.name}) | {count:,} | {config.num_hidden_layers} |" in readme


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=8), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize("base", [LLAMA | {"rope_theta": 1e4, "rope_scaling": None, "rope_parameters": None}, GPT2])
@given(data=st.data())
def test_any_value_in_config_json_gives_a_section_or_a_users_error(base, data):
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(base)), JSON_VALUES, max_size=3))
    try:
        config, _ = config_from_hf(base | changes)
    except InputError as error:
        assert error.problems
    else:
        json.dumps(config_to_hf(config))
