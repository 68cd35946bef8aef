"""The one place that knows models by name."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from models.gpt2.config import Gpt2Config
from models.llama.config import LlamaConfig
from msllm.config.hugging_face import WeightMap
from msllm.config.sections import ModelConfig
from msllm.errors import InputError, Problem

MODEL_CONFIGS: dict[str, type[ModelConfig]] = {"gpt2": Gpt2Config, "llama": LlamaConfig}
"""model_type -> the class of its `model:` section. Importing this module does not import MindSpore."""


def build_model(config: ModelConfig) -> Any:
    """The network of `config` as a Cell: `models/<model_type>/model.py: build(config)`. Imports MindSpore."""
    return importlib.import_module(f"models.{config.model_type}.model").build(config)


def sharding(config: ModelConfig) -> ModuleType:
    """The module that cuts the network of `config` over devices: `models/<model_type>/sharding.py`. Imports MindSpore."""
    return importlib.import_module(f"models.{config.model_type}.sharding")


def weight_map(config: ModelConfig) -> WeightMap:
    """Names and shapes of the model's Hugging Face checkpoint: `models/<model_type>/weights.py`."""
    return _weights_module(config.model_type).weight_map(config)


def config_to_hf(config: ModelConfig) -> dict[str, Any]:
    """The content of a Hugging Face config.json for a model section of ours."""
    return _weights_module(config.model_type).config_to_hf(config)


def config_from_hf(hf: Mapping[str, Any], file: str | Path = "config.json") -> tuple[ModelConfig, list[str]]:
    """Our model section of a Hugging Face config.json, and the names of its fields that were not taken up.

    InputError, with `file` as the place, lists everything in it that our model has no counterpart for.
    """
    kind = hf.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_CONFIGS:
        raise InputError(Problem(f"model_type ({kind!r}) must be one of {', '.join(MODEL_CONFIGS)}", file))
    module = _weights_module(kind)
    return module.config_from_hf(hf, str(file)), module.not_carried_over(hf)


def _weights_module(model_type: str) -> ModuleType:
    return importlib.import_module(f"models.{model_type}.weights")
