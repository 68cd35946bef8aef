"""Llama and Hugging Face: the table of weights and the fields of config.json.

Our parameters carry Hugging Face's names and shapes, so the table has no renaming. Source of names and defaults:
transformers 4.57, LlamaForCausalLM and LlamaConfig (`rope_parameters` is version 5's form of the rotary fields).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.llama.config import LlamaConfig
from msllm.config.hugging_face import HfFields, HfTensor, WeightMap

FIELDS = HfFields(
    # All but the rotary fields, of which Hugging Face has had three forms.
    same={name: name for name in LlamaConfig.model_fields if name not in ("model_type", "rope_theta", "rope_scaling")},
    defaults={"max_position_embeddings": 2048, "rms_norm_eps": 1e-6},
    only={
        "hidden_act": ("silu", "swish"),
        "attention_bias": (False,),
        "mlp_bias": (False,),
        "attention_dropout": (0.0,),
        "partial_rotary_factor": (1.0, None),
        "quantization_config": (None,),
    },
)


def weight_map(config: LlamaConfig) -> WeightMap:
    """Names and shapes of every tensor of a model of this configuration."""
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key = config.num_attention_heads * config.head_size, config.kv_heads * config.head_size
    block = {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (query, hidden),
        "self_attn.k_proj": (key, hidden),
        "self_attn.v_proj": (key, hidden),
        "self_attn.o_proj": (hidden, query),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens": (config.vocab_size, hidden)}
    for i in range(config.num_hidden_layers):
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in block.items()}
    shapes["model.norm"] = (hidden,)
    if not config.tie_word_embeddings:
        shapes["lm_head"] = (config.vocab_size, hidden)
    return WeightMap(
        tensors=tuple(HfTensor(f"{name}.weight", shape, (f"{name}.weight",)) for name, shape in shapes.items()),
        base_prefix="model.",
        copies={"lm_head.weight": "model.embed_tokens.weight"} if config.tie_word_embeddings else {},
        buffers=(r"(model\.)?(layers\.\d+\.self_attn\.)?rotary_emb\.(original_)?inv_freq",),
    )


def config_from_hf(hf: Mapping[str, Any], file: str = "config.json") -> LlamaConfig:
    """Our model section from the content of a config.json; InputError lists all that is unsupported or wrong."""
    rope = hf.get("rope_parameters") or hf.get("rope_scaling") or {}
    own = {"model_type": "llama", "rope_theta": hf.get("rope_theta", 10000.0), "rope_scaling": rope}
    if isinstance(rope, Mapping):
        scaling = dict(rope)
        own["rope_theta"] = scaling.pop("rope_theta", own["rope_theta"])
        kind = scaling.pop("type", None)  # files of 2023
        kind = scaling.pop("rope_type", kind)
        own["rope_scaling"] = None if kind in (None, "default") else {"rope_type": kind, **scaling}
    return FIELDS.read(LlamaConfig, hf, file, own)


def not_carried_over(hf: Mapping[str, Any]) -> list[str]:
    """Fields of a config.json that no field of ours takes up and that are not known to be harmless."""
    return FIELDS.not_carried_over(hf, ("rope_theta", "rope_scaling", "rope_parameters"))


def config_to_hf(config: LlamaConfig) -> dict[str, Any]:
    """The content of a config.json of this model; token ids are null, the caller knows the tokenizer's."""
    scaling = config.rope_scaling
    used = {"rope_type", "factor"} if scaling and scaling.rope_type == "linear" else None
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        **{theirs: getattr(config, ours) for theirs, ours in FIELDS.same.items()},
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "rope_theta": config.rope_theta,
        "rope_scaling": scaling.model_dump(include=used) if scaling else None,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }
