"""Llama 1 to 3 (Touvron et al. 2023; Grattafiori et al. 2024), parameter for parameter as Hugging Face names them.

T = B * S tokens, H hidden size, V vocabulary, D head size.
"""

from __future__ import annotations

import math

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.common.initializer import Normal
from mindspore.ops import operations as P

from models.llama.config import LlamaConfig
from msllm.layers import rope
from msllm.layers.attention import SelfAttention
from msllm.layers.embedding import Embedding, TiedHead
from msllm.layers.feed_forward import GatedFeedForward
from msllm.layers.linear import Linear
from msllm.layers.norm import RMSNorm


class LlamaDecoderLayer(nn.Cell):
    """Attention and feed-forward, each after a norm and added to the stream. Inputs and outputs: (T, H)."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        init = Normal(config.initializer_range)
        # Each layer adds twice to the residual stream: its output weights start smaller (Radford et al. 2019).
        out_init = Normal(config.initializer_range / math.sqrt(2 * config.num_hidden_layers))
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = SelfAttention(
            config.hidden_size, config.num_attention_heads, config.kv_heads, config.head_size, init, out_init
        )
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = GatedFeedForward(config.hidden_size, config.intermediate_size, init, out_init)
        self.add_attention = P.Add()
        self.add_mlp = P.Add()

    def construct(self, x, batch, rotary, start=None):
        x = self.add_attention(x, self.self_attn(self.input_layernorm(x), batch, rotary, start))
        return self.add_mlp(x, self.mlp(self.post_attention_layernorm(x)))


class LlamaModel(nn.Cell):
    """Embedding, decoder layers, final norm. Inputs: input_ids (B, S) int32. Outputs: (T, H)."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.hidden_size, self.head_dim = config.hidden_size, config.head_size
        self.embed_tokens = Embedding(config.vocab_size, config.hidden_size, Normal(config.initializer_range))
        self.layers = nn.CellList([LlamaDecoderLayer(config) for _ in range(config.num_hidden_layers)])
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        cos, sin = rope.rotary_tables(rotary_frequencies(config), config.max_position_embeddings)
        self.cos, self.sin = Tensor(cos), Tensor(sin)
        self.positions = Tensor(list(range(config.max_position_embeddings)), ms.int32)
        self.gather = P.Gather()
        self.reshape = P.Reshape()

    def rotary(self, length, start):
        """cos and sin of positions start .. start + length - 1, each (1, length, 1, D)."""
        shape = (1, length, 1, self.head_dim)
        if start is None:
            return self.reshape(self.cos[:length], shape), self.reshape(self.sin[:length], shape)
        rows = start + self.positions[:length]
        return self.reshape(self.gather(self.cos, rows, 0), shape), self.reshape(self.gather(self.sin, rows, 0), shape)

    def construct(self, input_ids, start=None):
        batch, length = input_ids.shape
        rotary = self.rotary(length, start)
        x = self.reshape(self.embed_tokens(input_ids), (batch * length, self.hidden_size))
        for layer in self.layers:
            x = layer(x, batch, rotary, start)
        return self.norm(x)


class LlamaForCausalLM(nn.Cell):
    """Next-token logits.

    Inputs: input_ids (B, S) int32; start () int32 with a cache, else None. Outputs: (B, S, V).
    """

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.vocab_size = config.vocab_size
        self.model = LlamaModel(config)
        self.tied = config.tie_word_embeddings
        if self.tied:
            self.tied_head = TiedHead()
        else:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, Normal(config.initializer_range))
        self.reshape = P.Reshape()

    def construct(self, input_ids, start=None):
        batch, length = input_ids.shape
        x = self.model(input_ids, start)
        if self.tied:
            logits = self.tied_head(x, self.model.embed_tokens.weight)
        else:
            logits = self.lm_head(x)
        return self.reshape(logits, (batch, length, self.vocab_size))


def rotary_frequencies(config: LlamaConfig):
    """Rotary frequencies (D/2,) float32 after the config's scaling."""
    frequencies = rope.inverse_frequencies(config.head_size, config.rope_theta)
    scaling = config.rope_scaling
    if scaling is None:
        return frequencies
    if scaling.rope_type == "linear":
        return rope.scale_linear(frequencies, scaling.factor)
    return rope.scale_llama3(
        frequencies,
        scaling.factor,
        scaling.low_freq_factor,
        scaling.high_freq_factor,
        scaling.original_max_position_embeddings,
    )


def build(config: LlamaConfig) -> LlamaForCausalLM:
    """The registry's entry."""
    return LlamaForCausalLM(config)
