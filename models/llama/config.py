"""Fields of Llama-style models, named as in Hugging Face's LlamaConfig."""

from __future__ import annotations

from typing import Literal

from msllm.config.sections import LayerShape, ModelConfig, PositiveFloat, PositiveInt, Section


class RopeScaling(Section):
    """Stretching of the rotary frequencies for longer contexts (Llama 3.1 report; Chen et al. 2023 for linear)."""

    rope_type: Literal["llama3", "linear"]
    """linear divides all frequencies by factor; llama3 only the low ones, with a smooth passage."""
    factor: PositiveFloat
    """By how much the context grows."""
    low_freq_factor: PositiveFloat = 1.0
    """llama3: wavelengths above original_max_position_embeddings / low_freq_factor are stretched fully."""
    high_freq_factor: PositiveFloat = 4.0
    """llama3: wavelengths below original_max_position_embeddings / high_freq_factor stay."""
    original_max_position_embeddings: PositiveInt = 8192
    """llama3: context length of the original training."""


class LlamaConfig(ModelConfig):
    """Llama 1 to 3: RMSNorm, rotary positions, grouped-query attention, SwiGLU."""

    model_type: Literal["llama"]
    """Name of the model in the registry."""
    intermediate_size: PositiveInt
    """Width inside the feed-forward block."""
    num_key_value_heads: PositiveInt | None = None
    """Key and value heads (grouped-query attention); null: as many as query heads."""
    head_dim: PositiveInt | None = None
    """Width of one head; null: hidden_size / num_attention_heads."""
    rms_norm_eps: PositiveFloat = 1.0e-5
    """Added to the mean square in RMSNorm."""
    rope_theta: PositiveFloat = 10000.0
    """Base of the rotary frequencies."""
    rope_scaling: RopeScaling | None = None
    """Stretched frequencies; null: none."""
    tie_word_embeddings: bool = False
    """One matrix for embedding and head."""

    @property
    def kv_heads(self) -> int:
        """Key and value heads, resolved."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_size(self) -> int:
        """Width of one head, resolved."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def ties_embeddings(self) -> bool:
        """Whether embedding and head are one matrix."""
        return self.tie_word_embeddings

    @property
    def layer_shape(self) -> LayerShape:
        """Sizes of a layer."""
        heads = self.num_attention_heads
        return LayerShape(heads * self.head_size, self.kv_heads * self.head_size, self.intermediate_size)

    def problems(self) -> list[tuple[str, str]]:
        """Faults between this section's own fields, as (field, message)."""
        found = super().problems()
        if self.num_attention_heads % self.kv_heads:
            found.append(
                (
                    "num_key_value_heads",
                    f"num_attention_heads ({self.num_attention_heads}) must be divisible by "
                    f"num_key_value_heads ({self.kv_heads})",
                )
            )
        if self.head_size % 2:
            found.append(("head_dim", f"head_dim ({self.head_size}) must be even: rotary positions turn pairs"))
        return found

    def cut_by_model_parallel(self) -> dict[str, int]:
        """Field -> value of every size that tensor parallelism divides."""
        return super().cut_by_model_parallel() | {
            "num_key_value_heads": self.kv_heads,
            "intermediate_size": self.intermediate_size,
        }
