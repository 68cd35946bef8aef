"""Writes the golden files of this folder: what Hugging Face's implementation computes for tiny random models.

The tests read the files and need neither torch nor transformers. To make them anew, in an environment of its own:

    python3 -m venv /tmp/golden && /tmp/golden/bin/pip install torch==2.13.0 transformers==4.57.1 safetensors 'numpy<2'
    /tmp/golden/bin/python tests/golden/make_goldens.py

One case is `<name>.json`, the model section of our configuration, and `<name>.safetensors` with
    weight/<Hugging Face name>   float32
    input_ids, labels            int32 (B, S); labels[b, t] is the token after input_ids[b, t]
    logits                       float32 (B, S, vocab)
    loss                         float32 (), mean cross entropy over all B * S labels
    grad/<Hugging Face name>     float32, gradient of the loss

`hf_<name>/` are checkpoints as `save_pretrained` writes them, for the tests of the importer: one in bfloat16 and in
shards, one in float16. Weights and tokens come from NumPy's generator and are the same everywhere; logits and
gradients are the same bytes on one machine and may differ in the last bits on another processor.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, PreTrainedModel

FOLDER = Path(__file__).resolve().parent

LLAMA = {
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
}
GPT2 = {
    "model_type": "gpt2",
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 32,
}
LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    # With heads of 16 and theta 10000 the wavelengths are 6.3, 19.9, 62.8 ...: one each in the band that stays, in
    # the passage and in the band that is stretched.
    "original_max_position_embeddings": 32,
}
CASES = {  # name: (our model section, (batch, sequence))
    "llama_mha": (LLAMA, (2, 16)),
    "llama_gqa": (LLAMA | {"num_attention_heads": 8, "num_key_value_heads": 2, "rms_norm_eps": 1e-6}, (2, 16)),
    "llama_tied": (LLAMA | {"num_key_value_heads": 2, "tie_word_embeddings": True}, (2, 16)),
    "llama_llama3_rope": (
        LLAMA
        | {
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "num_hidden_layers": 1,
            "rope_theta": 10000.0,
            "rope_scaling": LLAMA3_SCALING,
        },
        (1, 48),
    ),
    "llama_linear_rope": (
        LLAMA | {"num_hidden_layers": 1, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        (1, 48),
    ),
    # 97 rows in the embedding; heads wider than hidden_size / heads; an epsilon and a base that show in the logits.
    "llama_odd": (
        LLAMA
        | {
            "vocab_size": 97,
            "num_key_value_heads": 2,
            "head_dim": 12,
            "rms_norm_eps": 3e-2,
            "rope_theta": 500.0,
        },
        (3, 11),
    ),
    "gpt2_odd_vocab": (GPT2 | {"vocab_size": 97}, (2, 16)),
    "gpt2_inner": (GPT2 | {"intermediate_size": 40, "layer_norm_epsilon": 1e-2, "num_attention_heads": 2}, (3, 11)),
}


def hugging_face_model(config: dict) -> PreTrainedModel:
    """Hugging Face's model of our fields, in float32, with plain attention and no dropout."""
    fields = {key: value for key, value in config.items() if key != "model_type"}
    if config["model_type"] == "llama":
        fields = {"rms_norm_eps": 1e-5} | fields  # our default is Llama 2's, theirs Llama 1's
        return LlamaForCausalLM(LlamaConfig(**fields, attn_implementation="eager"))
    fields["n_inner"] = fields.pop("intermediate_size", None)
    no_dropout = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    return GPT2LMHeadModel(GPT2Config(**fields, **no_dropout, attn_implementation="eager"))


def draw_weights(model: PreTrainedModel, rng: np.random.Generator) -> None:
    """Weights large enough that attention is far from uniform, norms around 1 and biases that are not zero."""
    for name, parameter in sorted(model.named_parameters()):
        values = rng.standard_normal(parameter.shape)
        if name.endswith("bias"):
            values *= 0.3
        elif parameter.ndim == 1:
            values = 1 + 0.2 * values
        elif "wte" in name or "wpe" in name or "embed_tokens" in name:
            values *= 0.5
        else:
            # Conv1D of GPT-2 is (in, out), Linear is (out, in).
            fan_in = parameter.shape[0] if model.config.model_type == "gpt2" else parameter.shape[1]
            values *= 1.2 / fan_in**0.5
        parameter.data = torch.tensor(values, dtype=torch.float32)
    model.tie_weights()


def write_case(name: str, config: dict, shape: tuple[int, int], rng: np.random.Generator) -> None:
    """Write one case's configuration, inputs, outputs and gradients."""
    model = hugging_face_model(config).train()
    draw_weights(model, rng)
    rows = rng.integers(0, config["vocab_size"], (shape[0], shape[1] + 1))
    input_ids, labels = torch.tensor(rows[:, :-1]), torch.tensor(rows[:, 1:])
    logits = model(input_ids=input_ids, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    arrays = {
        "input_ids": rows[:, :-1].astype(np.int32),
        "labels": rows[:, 1:].astype(np.int32),
        "logits": logits.detach().numpy(),
        "loss": loss.detach().numpy(),
    }
    for key, parameter in model.named_parameters():
        arrays[f"weight/{key}"] = parameter.detach().numpy()
        arrays[f"grad/{key}"] = parameter.grad.numpy()
    save_file({key: np.ascontiguousarray(value) for key, value in arrays.items()}, FOLDER / f"{name}.safetensors")
    (FOLDER / f"{name}.json").write_text(json.dumps(config, indent=2) + "\n")


def write_checkpoint(name: str, config: dict, dtype: torch.dtype, shard: str, rng: np.random.Generator) -> None:
    """Write a folder as users download it."""
    folder = FOLDER / name
    shutil.rmtree(folder, ignore_errors=True)
    model = hugging_face_model(config)
    draw_weights(model, rng)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    (folder / "generation_config.json").unlink(missing_ok=True)


def main() -> None:
    """Write everything, in the order of CASES, each from a seed of its own."""
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for seed, (name, (config, shape)) in enumerate(CASES.items()):
        write_case(name, config, shape, np.random.default_rng(seed))
        print(f"{name}: {(FOLDER / f'{name}.safetensors').stat().st_size // 1024} KB")
    write_checkpoint("hf_llama", CASES["llama_gqa"][0], torch.bfloat16, "20KB", np.random.default_rng(100))
    write_checkpoint("hf_gpt2", CASES["gpt2_odd_vocab"][0], torch.float16, "1MB", np.random.default_rng(101))


if __name__ == "__main__":
    main()
