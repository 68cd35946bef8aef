"""GPT-2 and Hugging Face: the table of weights and the fields of config.json.

Hugging Face keeps OpenAI's Conv1D: weights are (in, out), and query, key and value are one matrix. Ours are (out, in)
and three, and the output projection is o_proj, as in every attention of msllm/layers. Source of names and defaults:
transformers 4.57, GPT2LMHeadModel and GPT2Config.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from models.gpt2.config import Gpt2Config
from msllm.config.hugging_face import HfFields, HfTensor, WeightMap

FIELDS = HfFields(
    same={
        "vocab_size": "vocab_size",
        "n_embd": "hidden_size",
        "n_layer": "num_hidden_layers",
        "n_head": "num_attention_heads",
        "n_positions": "max_position_embeddings",
        "n_inner": "intermediate_size",
        "layer_norm_epsilon": "layer_norm_epsilon",
        "initializer_range": "initializer_range",
    },
    defaults={"max_position_embeddings": 1024},
    only={
        "activation_function": ("gelu_new", "gelu_pytorch_tanh"),  # two names of one formula
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
        "tie_word_embeddings": (True,),
        "quantization_config": (None,),
    },
    # n_ctx repeats n_positions; reorder_and_upcast_attn changes the order of rounding; summary_* belongs to other heads.
    unused=frozenset(
        {
            "n_ctx",
            "reorder_and_upcast_attn",
            "summary_activation",
            "summary_first_dropout",
            "summary_proj_to_labels",
            "summary_type",
            "summary_use_proj",
        }
    ),
)


def weight_map(config: Gpt2Config) -> WeightMap:
    """Names and shapes of every tensor of a model of this configuration."""
    hidden, inner = config.hidden_size, config.inner_size
    tensors = [
        _plain("transformer.wte.weight", config.vocab_size, hidden),
        _plain("transformer.wpe.weight", config.max_position_embeddings, hidden),
    ]
    for i in range(config.num_hidden_layers):
        block = f"transformer.h.{i}"
        tensors += [
            *_norm(f"{block}.ln_1", hidden),
            *_conv1d(f"{block}.attn.c_attn", hidden, 3 * hidden, [f"{block}.attn.{n}_proj" for n in "qkv"]),
            *_conv1d(f"{block}.attn.c_proj", hidden, hidden, [f"{block}.attn.o_proj"]),
            *_norm(f"{block}.ln_2", hidden),
            *_conv1d(f"{block}.mlp.c_fc", hidden, inner),
            *_conv1d(f"{block}.mlp.c_proj", inner, hidden),
        ]
    return WeightMap(
        tensors=(*tensors, *_norm("transformer.ln_f", hidden)),
        base_prefix="transformer.",
        copies={"lm_head.weight": "transformer.wte.weight"},
        buffers=(r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)",),
    )


def _plain(name: str, *shape: int) -> HfTensor:
    return HfTensor(name, shape, (name,))


def _norm(name: str, size: int) -> list[HfTensor]:
    return [_plain(f"{name}.weight", size), _plain(f"{name}.bias", size)]


def _conv1d(name: str, inputs: int, outputs: int, ours: list[str] | None = None) -> list[HfTensor]:
    ours = ours or [name]
    return [
        HfTensor(f"{name}.weight", (inputs, outputs), tuple(f"{n}.weight" for n in ours), transposed=True),
        HfTensor(f"{name}.bias", (outputs,), tuple(f"{n}.bias" for n in ours)),
    ]


def config_from_hf(hf: Mapping[str, Any], file: str = "config.json") -> Gpt2Config:
    """Our model section from the content of a config.json; InputError lists all that is unsupported or wrong."""
    return FIELDS.read(Gpt2Config, hf, file, {"model_type": "gpt2"})


def not_carried_over(hf: Mapping[str, Any]) -> list[str]:
    """Fields of a config.json that no field of ours takes up and that are not known to be harmless.

    The dropout rates are among them: this GPT-2 trains without dropout.
    """
    return FIELDS.not_carried_over(hf, ())


def config_to_hf(config: Gpt2Config) -> dict[str, Any]:
    """The content of a config.json of this model; token ids are null, the caller knows the tokenizer's."""
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        **{theirs: getattr(config, ours) for theirs, ours in FIELDS.same.items()},
        "activation_function": "gelu_new",
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
        "bos_token_id": None,
        "eos_token_id": None,
    }
