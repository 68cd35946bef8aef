"""Valid sections of a configuration, and what the checks say once some of their fields are changed."""

from __future__ import annotations

from typing import Any

from models.gpt2.config import Gpt2Config
from models.llama.config import LlamaConfig
from msllm.config.checks import cross_faults
from msllm.config.origin import LoadedConfig, Origin, Origins
from msllm.config.sections import (
    CheckpointConfig,
    DataConfig,
    LrScheduleConfig,
    OptimizerConfig,
    ParallelConfig,
    RecomputeConfig,
    RunConfig,
    TrainingConfig,
)

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}
GPT2: dict[str, Any] = {
    "model_type": "gpt2",
    "vocab_size": 50257,
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 1024,
}


def sections(**changes: dict[str, Any]) -> dict[str, Any]:
    """Valid sections with some fields changed, as section=dict(field=value)."""
    model = changes.pop("model", {})
    return {
        "model": Gpt2Config(**{**GPT2, **model})
        if model.get("model_type") == "gpt2"
        else LlamaConfig(**{**LLAMA, **model}),
        "data": DataConfig(**{"train_dataset": "d", "seq_length": 1024, **changes.pop("data", {})}),
        "optimizer": OptimizerConfig(**changes.pop("optimizer", {})),
        "lr_schedule": LrScheduleConfig(**changes.pop("lr_schedule", {})),
        "training": TrainingConfig(**{"train_steps": 100, "global_batch_size": 32, **changes.pop("training", {})}),
        "checkpoint": CheckpointConfig(**changes.pop("checkpoint", {})),
        "parallel_config": ParallelConfig(**changes.pop("parallel", {})),
        "recompute_config": RecomputeConfig(**changes.pop("recompute", {})),
    }


def messages(**changes: dict[str, Any]) -> list[str]:
    """Messages of the faults of the changed configuration."""
    return [fault.message for fault in cross_faults(sections(**changes))]


def loaded(**changes: dict[str, Any]) -> LoadedConfig:
    """A configuration whose parallel_config came from p.yaml."""
    places: dict[tuple[str, ...], Origin] = {}
    for line, key in enumerate(ParallelConfig.model_fields, start=2):
        places["parallel_config", key] = Origin("p.yaml", line)
    return LoadedConfig(RunConfig(**sections(**changes)), Origins(places))
