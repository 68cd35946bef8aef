"""The one place that knows models by name."""

from __future__ import annotations

import importlib
from typing import Any

from models.gpt2.config import Gpt2Config
from models.llama.config import LlamaConfig
from msllm.config.sections import ModelConfig

MODEL_CONFIGS: dict[str, type[ModelConfig]] = {"gpt2": Gpt2Config, "llama": LlamaConfig}
"""model_type -> the class of its `model:` section. Importing this module does not import MindSpore."""


def build_model(config: ModelConfig) -> Any:
    """The network of `config` as a Cell: `models/<model_type>/model.py: build(config)`. Imports MindSpore."""
    return importlib.import_module(f"models.{config.model_type}.model").build(config)


def weight_map(config: ModelConfig) -> Any:
    """Hugging Face's names of the weights: `models/<model_type>/weights.py: weight_map(config)`."""
    return importlib.import_module(f"models.{config.model_type}.weights").weight_map(config)
