"""MindFormers YAMLs: what is carried over, and that nothing is lost without a word."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from msllm.config.load import load_run_config
from msllm.config.mindformers import import_mindformers
from msllm.config.mindformers.report import Source
from msllm.config.yaml_text import dump_yaml, parse_value
from msllm.errors import InputError
from msllm.registry import MODEL_CONFIGS

YAMLS = Path(__file__).parent / "mindformers"
LEGACY = (YAMLS / "legacy.yaml").read_text()
QWEN = (YAMLS / "qwen.yaml").read_text()


def test_a_legacy_llama_keeps_every_number_that_has_a_counterpart(convert):
    _, values = convert(LEGACY)
    assert values["model"] == {
        "model_type": "llama",
        "vocab_size": 32000,
        "hidden_size": 8192,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "initializer_range": 0.01,
        "intermediate_size": 28672,
    }
    assert values["optimizer"] == {
        "type": "AdamW",
        "betas": [0.9, 0.95],
        "eps": 1e-8,
        "weight_decay": 0.0,
        "learning_rate": 5e-5,
        "max_grad_norm": 1.0,
    }
    assert values["lr_schedule"] == {"type": "cosine", "total_steps": 10000, "warmup_steps": 300, "lr_end": 0}
    assert values["training"] == {
        "global_batch_size": 64,
        "gradient_accumulation_steps": 8,
        "amp_level": "O2",
        "compute_dtype": "float16",
        "loss_scale": {"loss_scale_value": 65536, "scale_factor": 2, "scale_window": 1000},
        "seed": 0,
        "device_target": "Ascend",
        "sink_size": 2,
    }
    assert values["parallel_config"] == {
        "data_parallel": 4,
        "model_parallel": 8,
        "pipeline_stage": 1,
        "use_seq_parallel": True,
        "vocab_emb_dp": True,
        "enable_parallel_optimizer": True,
        "gradient_aggregation_group": 4,
        "parallel_optimizer_config": {"parallel_optimizer_threshold": 64},
    }
    assert values["checkpoint"] == {"save_steps": 1000}
    assert values["data"] == {"seq_length": 4096, "shuffle": True, "num_parallel_workers": 8, "prefetch_size": 1}


def test_what_is_left_behind_has_its_reason(convert, reason_of):
    imported, _ = convert(LEGACY)
    assert reason_of(imported, "parallel_config.micro_batch_num") == "it has no effect with pipeline_stage 1"
    assert reason_of(imported, "optimizer.learning_rate") == "lr_schedule.learning_rate wins over it"
    assert "float32 here" in reason_of(imported, "model.model_config.softmax_compute_type")
    assert "epochs x rows" in reason_of(imported, "runner_config.epochs")
    assert "msllm's choice" in reason_of(imported, "recompute_config.select_recompute")
    assert any("no bias correction" in line for line in imported.differences)


def test_the_written_file_tells_what_it_still_needs_and_then_loads(convert, tmp_path):
    imported, _ = convert(LEGACY)
    assert [line.split(" ")[0] for line in imported.missing] == ["data.train_dataset", "training.train_steps"]
    overrides = ["data.train_dataset=d", "training.train_steps=10000"]
    config = load_run_config([tmp_path / "ours.yaml"], None, overrides, MODEL_CONFIGS).config
    assert config.parallel_config.device_num == 32


def test_each_value_in_the_file_names_its_origin(convert, tmp_path):
    convert(LEGACY)
    lines = (tmp_path / "ours.yaml").read_text().splitlines()
    assert any("num_hidden_layers: 80" in line and "# model.model_config.num_layers" in line for line in lines)
    assert any(line.startswith("# - ") and "profile" in line for line in lines)


def test_qwen_is_named_and_everything_but_its_network_is_carried(convert, reason_of):
    imported, values = convert(QWEN)
    assert "model" not in values
    assert reason_of(imported, "model.model_config.hidden_size").startswith("Qwen is not a model of this version")
    assert values["training"]["global_batch_size"] == 16
    assert values["training"]["compute_dtype"] == "bfloat16"
    assert values["optimizer"]["max_grad_norm"] is None
    assert values["lr_schedule"] == {"type": "constant", "warmup_steps": 0}
    assert values["data"] == {"seq_length": 4096}
    assert "model.model_type is required: one of gpt2, llama" in imported.missing[0]


def test_names_of_hugging_face_are_read_too(convert):
    _, values = convert(
        dump_yaml(
            {
                "model": {
                    "model_config": {
                        "model_type": "llama",
                        "num_hidden_layers": 2,
                        "num_attention_heads": 4,
                        "hidden_size": 8,
                        "num_key_value_heads": 2,
                        "intermediate_size": 16,
                        "vocab_size": 64,
                        "rope_theta": 5e5,
                        "max_position_embeddings": 32,
                        "untie_embeddings_and_output_weights": False,
                        "rope_scaling": {"type": "linear", "factor": 2.0},
                    }
                }
            }
        )
    )
    assert values["model"] == {
        "model_type": "llama",
        "vocab_size": 64,
        "hidden_size": 8,
        "intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 32,
        "rope_theta": 5e5,
        "tie_word_embeddings": True,
        "rope_scaling": {"rope_type": "linear", "factor": 2.0},
    }


@pytest.mark.parametrize(
    ("hidden", "extra", "width"),
    [
        (4096, {}, 11008),  # Llama 2 7B
        (5120, {}, 13824),  # Llama 2 13B
        (8192, {"ffn_dim_multiplier": 1.3}, 28672),  # Llama 2 70B
        (4096, {"ffn_dim_multiplier": 1.3, "multiple_of": 1024}, 14336),  # Llama 3 8B
    ],
)
def test_the_feed_forward_width_is_computed_as_mindformers_does(convert, hidden, extra, width):
    text = dump_yaml({"model": {"model_config": {"type": "LlamaConfig", "hidden_size": hidden, **extra}}})
    assert convert(text)[1]["model"]["intermediate_size"] == width


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"qkv_has_bias": True}, "qkv_has_bias is true, and Llama here has no biases"),
        ({"extend_method": "NTK"}, "extend_method is NTK, and Llama here has PI and LLAMA3"),
        ({"hidden_act": "gelu"}, "hidden_act is gelu, and Llama here has SwiGLU"),
        ({"qk_layernorm": True}, "qk_layernorm is true, and Llama here does not normalise queries and keys"),
        ({"type": "GLMConfig"}, "model glmconfig has no counterpart; only Llama is imported"),
    ],
)
def test_a_network_that_is_not_our_llama_is_left_out_with_the_reason(convert, change, reason):
    model = {"type": "LlamaConfig", "hidden_size": 8, "compute_dtype": "float32", **change}
    imported, values = convert(dump_yaml({"seed": 1, "model": {"model_config": model}}))
    assert "model" not in values
    assert reason in imported.dropped


@pytest.mark.parametrize(
    ("scaling", "expected"),
    [
        ({"extend_method": "PI", "scaling_factor": 4.0}, {"rope_type": "linear", "factor": 4.0}),
        (
            {"extend_method": "LLAMA3", "scaling_factor": {"factor": 8.0, "low_freq_factor": 1.0}},
            {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0},
        ),
        ({"extend_method": "None", "scaling_factor": 1.0}, None),
    ],
)
def test_longer_contexts_are_carried(convert, scaling, expected):
    _, values = convert(dump_yaml({"model": {"model_config": {"type": "LlamaConfig", **scaling}}}))
    assert values["model"].get("rope_scaling") == expected


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (
            {"type": "WarmUpStableDecayLR", "warmup_steps": 5, "total_steps": 100, "decay_start_ratio": 0.9},
            {"type": "wsd", "total_steps": 100, "warmup_steps": 5, "decay_steps": 10, "lr_end": 1e-7},
        ),
        (
            {"type": "LinearWithWarmUpLR", "warmup_steps": 5, "total_steps": -1, "lr_end": 0.1},
            {"type": "linear", "warmup_steps": 5},
        ),
        ({"type": "CosineWithWarmUpLR", "warmup_ratio": 0.1}, {"type": "cosine", "lr_end": 0.0}),
        ({"type": "PolynomialWithWarmUpLR", "total_steps": 9}, None),
        ({"type": "CosineWithWarmUpLR", "num_cycles": 2, "total_steps": 9}, None),
    ],
)
def test_schedules(convert, schedule, expected):
    _, values = convert(dump_yaml({"seed": 1, "lr_schedule": schedule}))
    assert values.get("lr_schedule") == expected


@pytest.mark.parametrize(
    ("parts", "batch", "accumulation"),
    [
        ({"parallel_config": {"data_parallel": 4}}, 8, None),
        ({"parallel_config": {"pipeline_stage": 2, "micro_batch_num": 8}}, 16, None),
        ({"parallel_config": {"data_parallel": 4, "micro_batch_num": 8}}, 8, None),
        ({"micro_batch_interleave_num": 2}, 4, None),
        ({"runner_config": {"batch_size": 2, "gradient_accumulation_steps": 8}}, 16, 8),
        ({"parallel": {"parallel_mode": 0}, "use_parallel": True}, None, None),
        ({"runner_config": {"batch_size": "two"}}, None, None),
    ],
)
def test_the_batch_of_one_device_becomes_the_global_one(convert, parts, batch, accumulation):
    _, values = convert(dump_yaml({"seed": 1, "runner_config": {"batch_size": 2}, **parts}))
    assert values["training"].get("global_batch_size") == batch
    assert values["training"].get("gradient_accumulation_steps") == accumulation


def test_a_strategy_that_mindformers_does_not_run_is_not_carried(convert):
    strategy = {"seed": 1, "parallel_config": {"model_parallel": 8}}
    assert "parallel_config" not in convert(dump_yaml({**strategy, "use_parallel": False}))[1]
    assert "parallel_config" not in convert(dump_yaml({**strategy, "parallel": {"parallel_mode": 2}}))[1]
    assert convert(dump_yaml(strategy))[1]["parallel_config"]["model_parallel"] == 8


@pytest.mark.parametrize(
    ("dtype", "scale", "expected"),
    [
        ("float16", {"type": "DynamicLossScaleUpdateCell", "loss_scale_value": 4}, {"loss_scale_value": 4}),
        ("float16", 1.0, None),
        ("bfloat16", {"type": "DynamicLossScaleUpdateCell", "loss_scale_value": 4}, None),
    ],
)
def test_the_loss_scale_goes_with_float16(convert, dtype, scale, expected, reason_of):
    model = {"model_config": {"type": "LlamaConfig", "compute_dtype": dtype}}
    imported, values = convert(dump_yaml({"model": model, "runner_wrapper": {"scale_sense": scale}}))
    assert values["training"].get("loss_scale") == expected
    if expected is None:
        assert "float16" in reason_of(imported, "runner_wrapper.scale_sense")


def test_an_output_that_exists_is_not_overwritten(convert, tmp_path):
    convert(QWEN)
    with pytest.raises(InputError, match="exists already"):
        import_mindformers(tmp_path / "mf.yaml", tmp_path / "ours.yaml", MODEL_CONFIGS)


@pytest.mark.parametrize("text", ["hello: 1", "", "- 1", "model: 5"])
def test_a_file_of_something_else_is_refused(convert, text):
    with pytest.raises(InputError):
        convert(text)


# What decides on another value and is then done with; its effect stands in that value.
DECIDERS = {
    "use_clip_grad",
    "sink_mode",
    "multiple_of",
    "ffn_dim_multiplier",
    "extend_method",
    "micro_batch_interleave_num",
}


@pytest.mark.parametrize("text", [LEGACY, QWEN], ids=["legacy", "qwen"])
def test_nothing_is_dropped_silently(convert, text):
    imported, _ = convert(text)
    carried = " ".join(imported.notes.values())
    dropped = [path for paths in imported.dropped.values() for path in paths]
    for leaf in Source(parse_value(text)[0]).leaves():
        branch, _, key = leaf.rpartition(".")
        is_named = leaf in carried or branch in carried or key in carried
        assert is_named or key in DECIDERS or any(f"{leaf}.".startswith(f"{path}.") for path in dropped), leaf


JUNK = st.sampled_from(
    [None, 0, -1, 3, 2.5, True, "x", "LlamaConfig", "qwen", [], [1], {}, {"type": "x"}, {"a": {"b": 1}}]
)
PATHS = [tuple(leaf.split(".")) for text in (LEGACY, QWEN) for leaf in Source(parse_value(text)[0]).leaves()]
CUTS = st.sampled_from([path[:length] for path in PATHS for length in range(1, len(path) + 1)])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(st.sampled_from([LEGACY, QWEN]), st.dictionaries(CUTS, JUNK, min_size=1, max_size=4))
def test_odd_values_are_carried_to_the_checks_or_dropped_but_never_crash(tmp_path, text, changes):
    values = parse_value(text)[0]
    for path, value in changes.items():
        inner = values
        for key in path[:-1]:
            if not isinstance(inner.get(key), dict):
                inner[key] = {}
            inner = inner[key]
        inner[path[-1]] = copy.deepcopy(value)
    source, output = tmp_path / "mf.yaml", tmp_path / "ours.yaml"
    source.write_text(dump_yaml(values))
    Path(output).unlink(missing_ok=True)
    try:
        import_mindformers(source, output, MODEL_CONFIGS)
    except InputError as error:
        assert error.problems
