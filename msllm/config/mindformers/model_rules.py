"""model.model_config of a MindFormers YAML, where it is a Llama."""

from __future__ import annotations

from msllm.config.mindformers.report import Imported, Source, is_count, is_number, is_on

MODEL = "model.model_config"

# Field of `model:` -> the names it has had: Hugging Face's in the newer YAMLs, MindFormers' own in LlamaConfig.
_MODEL_NAMES = {
    "vocab_size": ("vocab_size",),
    "hidden_size": ("hidden_size",),
    "intermediate_size": ("intermediate_size", "ffn_hidden_size"),
    "num_hidden_layers": ("num_hidden_layers", "num_layers"),
    "num_attention_heads": ("num_attention_heads", "num_heads"),
    "num_key_value_heads": ("num_key_value_heads", "n_kv_heads", "num_query_groups"),
    "head_dim": ("head_dim", "kv_channels"),
    "max_position_embeddings": ("max_position_embeddings", "max_position_embedding", "seq_length"),
    "rms_norm_eps": ("rms_norm_eps", "layernorm_epsilon"),
    "rope_theta": ("rope_theta", "theta", "rotary_base"),
    "initializer_range": ("initializer_range", "init_method_std"),
    "tie_word_embeddings": ("tie_word_embeddings",),
}
# Defaults of MindFormers' LlamaConfig that a configuration of ours must name, or that differ from ours.
_LEGACY_DEFAULTS = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "max_position_embeddings": 2048,
    "initializer_range": 0.01,
}


def model(source: Source, out: Imported) -> None:
    """model.model_config of Llama; another family is named and left out."""
    if not isinstance(source.get(MODEL), dict):
        return
    reason = _why_not_llama(source)
    if reason is not None:
        source.drop("model", reason)
        return
    legacy = source.get(f"{MODEL}.type") == "LlamaConfig"
    out.put("model.model_type", "llama", f"{MODEL}.type" if legacy else f"{MODEL}.model_type")
    for key, names in _MODEL_NAMES.items():
        given = [f"{MODEL}.{name}" for name in names if source.get(f"{MODEL}.{name}") is not None]
        if given:
            out.put(f"model.{key}", source.take(given[0]), given[0])
        elif legacy and key in _LEGACY_DEFAULTS:
            out.put(f"model.{key}", _LEGACY_DEFAULTS[key], "MindFormers' default")
        for other in given[1:]:
            source.drop(other, f"{given[0]} says the same")
    untied = source.get(f"{MODEL}.untie_embeddings_and_output_weights")
    if untied is not None and out.get("model.tie_word_embeddings") is None:
        out.put("model.tie_word_embeddings", not untied, f"{MODEL}.untie_embeddings_and_output_weights")
    if legacy and out.get("model.intermediate_size") is None:
        _feed_forward_width(source, out)
    _rope_scaling(source, out)
    for name in ("type", "model_type", "architectures", "multiple_of", "ffn_dim_multiplier", "qkv_has_bias"):
        source.take(f"{MODEL}.{name}")
    for name in ("attention_bias", "add_bias_linear", "add_qkv_bias", "attn_proj_has_bias", "qk_layernorm"):
        source.take(f"{MODEL}.{name}")
    for name in ("hidden_act", "position_embedding_type", "untie_embeddings_and_output_weights"):
        source.take(f"{MODEL}.{name}")
    source.take("model.arch")
    for name in ("attention_dropout", "hidden_dropout", "emb_dropout_prob"):
        if not is_on(source.get(f"{MODEL}.{name}")):
            source.take(f"{MODEL}.{name}")
        source.drop(f"{MODEL}.{name}", "models are trained without dropout")


def _why_not_llama(source: Source) -> str | None:
    """Why the model section is not one of ours, or None where it is a Llama."""
    fields = source.get(MODEL)
    names = [fields.get("model_type"), fields.get("architectures"), fields.get("type"), source.get("model.arch.type")]
    names = [str(name).lower() for name in [source.get("trainer.model_name"), *names] if name is not None]
    if any("qwen" in name for name in names):
        return "Qwen is not a model of this version, only llama and gpt2 are; set model: yourself once it is"
    if not any("llama" in name for name in names):
        return f"model {', '.join(names) or 'without a name'} has no counterpart; only Llama is imported"
    for name in ("qkv_has_bias", "attention_bias", "add_bias_linear", "add_qkv_bias", "attn_proj_has_bias"):
        if is_on(fields.get(name)):
            return f"{name} is true, and Llama here has no biases"
    if is_on(fields.get("qk_layernorm")):
        return "qk_layernorm is true, and Llama here does not normalise queries and keys"
    if fields.get("hidden_act") not in (None, "silu", "swiglu", "fusedswiglu"):
        return f"hidden_act is {fields['hidden_act']}, and Llama here has SwiGLU"
    if fields.get("position_embedding_type") not in (None, "rope"):
        return f"position_embedding_type is {fields['position_embedding_type']}, and Llama here has rope"
    experts = source.get("moe_config.expert_num")
    if is_number(experts) and experts > 1:
        return "moe_config.expert_num is above 1, and Llama here has no experts"
    method = fields.get("extend_method")
    if is_on(method) and method not in ("PI", "LLAMA3"):
        return f"extend_method is {method}, and Llama here has PI and LLAMA3"
    return None


def _feed_forward_width(source: Source, out: Imported) -> None:
    """intermediate_size as LlamaFeedForward computes it from ffn_dim_multiplier and multiple_of."""
    hidden = out.get("model.hidden_size")
    multiplier = source.get(f"{MODEL}.ffn_dim_multiplier")
    multiple = source.get(f"{MODEL}.multiple_of") or 256
    if not is_count(hidden) or not is_count(multiple) or not (multiplier is None or is_number(multiplier)):
        return
    width = 4 * hidden if multiplier is None else int((multiplier + 0.01) * 4 * hidden)
    width = multiple * -(-int(2 * width / 3) // multiple)
    note = f"from hidden_size, multiple_of {multiple}" + (f", ffn_dim_multiplier {multiplier}" if multiplier else "")
    out.put("model.intermediate_size", width, note)


def _rope_scaling(source: Source, out: Imported) -> None:
    method, factor = source.take(f"{MODEL}.extend_method"), source.get(f"{MODEL}.scaling_factor")
    if method == "PI" and is_number(factor):
        out.put("model.rope_scaling", {"rope_type": "linear", "factor": factor}, f"{MODEL}.extend_method PI")
    elif method == "LLAMA3" and isinstance(factor, dict):
        out.put("model.rope_scaling", {"rope_type": "llama3", **factor}, f"{MODEL}.extend_method LLAMA3")
    elif isinstance(source.get(f"{MODEL}.rope_scaling"), dict):
        values = dict(source.take(f"{MODEL}.rope_scaling"))
        kind = values.pop("rope_type", values.pop("type", None))
        out.put("model.rope_scaling", {"rope_type": kind, **values}, f"{MODEL}.rope_scaling")
    source.take(f"{MODEL}.scaling_factor")
