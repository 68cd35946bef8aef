"""Fields of GPT-2, by the common names that Hugging Face's GPT2Config maps its own (n_embd, n_layer, n_head) to."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from msllm.config.sections import LayerShape, ModelConfig, PositiveFloat, PositiveInt


class Gpt2Config(ModelConfig):
    """GPT-2: LayerNorm, learned positions, multi-head attention, GELU, tied head. Trained here without dropout."""

    model_type: Literal["gpt2"]
    """Name of the model in the registry."""
    intermediate_size: PositiveInt | None = None
    """Width inside the feed-forward block (n_inner); null: 4 x hidden_size."""
    layer_norm_epsilon: PositiveFloat = 1.0e-5
    """Added to the variance in LayerNorm."""

    @property
    def inner_size(self) -> int:
        """Width inside the feed-forward block, resolved."""
        return self.intermediate_size or 4 * self.hidden_size

    @property
    def ties_embeddings(self) -> bool:
        """Embedding and head are one matrix."""
        return True

    @property
    def layer_shape(self) -> LayerShape:
        """Sizes of a layer."""
        return replace(super().layer_shape, inner=self.inner_size)

    def cut_by_model_parallel(self) -> dict[str, int]:
        """Field -> value of every size that tensor parallelism divides."""
        return super().cut_by_model_parallel() | {"intermediate_size": self.inner_size}
