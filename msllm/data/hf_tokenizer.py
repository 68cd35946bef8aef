"""A tokenizer as the files that Hugging Face's transformers loads beside a model's weights."""

from __future__ import annotations

import json
from typing import Any

from msllm.data.tokenizer import Tokenizer


def hf_files(tokenizer: Tokenizer, max_length: int) -> dict[str, bytes]:
    """File name -> content: the tokenizer's own file, and tokenizer_config.json, which says how to use it.

    `AutoTokenizer` then gives the ids that the training data was made with: no BOS is put before a text, EOD is `eos_token`.
    SentencePiece models are read as Llama's, which holds for BPE with byte fallback and identity normalisation.

    Args:
        tokenizer: with its `eod_id` as in the training data.
        max_length: tokens that the model takes at most.
    """
    config: dict[str, Any] = {
        "bos_token": None if tokenizer.bos_id is None else tokenizer.token(tokenizer.bos_id),
        "eos_token": tokenizer.token(tokenizer.eod_id),
        "model_max_length": max_length,
        "clean_up_tokenization_spaces": False,
    }
    if tokenizer.type == "sentencepiece":
        name = "tokenizer.model"
        # legacy: with False, transformers puts no space before a text that begins with one; SentencePiece does.
        config |= {"tokenizer_class": "LlamaTokenizer", "legacy": True, "add_bos_token": False, "add_eos_token": False}
    else:
        name = "tokenizer.json"
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    text = json.dumps({key: config[key] for key in sorted(config)}, indent=2, ensure_ascii=False) + "\n"
    return {name: tokenizer.path.read_bytes(), "tokenizer_config.json": text.encode()}
