"""GPT-2 (Radford et al. 2019), without dropout.

Parameters are those of Hugging Face, but for the attention's: c_attn is split in q_proj, k_proj and v_proj, c_proj is o_proj.

T = B * S tokens, H hidden size, V vocabulary.
"""

from __future__ import annotations

import math

import mindspore as ms
from mindspore import Tensor, nn
from mindspore.common.initializer import Normal
from mindspore.ops import operations as P

from models.gpt2.config import Gpt2Config
from msllm.layers.attention import SelfAttention
from msllm.layers.embedding import Embedding, TiedHead
from msllm.layers.feed_forward import FeedForward
from msllm.layers.norm import LayerNorm


class Gpt2Block(nn.Cell):
    """Attention and feed-forward, each after a norm and added to the stream. Inputs and outputs: (T, H)."""

    def __init__(self, config: Gpt2Config):
        super().__init__()
        init = Normal(config.initializer_range)
        out_init = Normal(config.initializer_range / math.sqrt(2 * config.num_hidden_layers))
        heads = config.num_attention_heads
        self.ln_1 = LayerNorm(config.hidden_size, config.layer_norm_epsilon)
        self.attn = SelfAttention(
            config.hidden_size, heads, heads, config.hidden_size // heads, init, out_init, has_bias=True
        )
        self.ln_2 = LayerNorm(config.hidden_size, config.layer_norm_epsilon)
        self.mlp = FeedForward(config.hidden_size, config.inner_size, init, out_init)
        self.add_attention = P.Add()
        self.add_mlp = P.Add()

    def construct(self, x, batch, start=None):
        x = self.add_attention(x, self.attn(self.ln_1(x), batch, None, start))
        return self.add_mlp(x, self.mlp(self.ln_2(x)))


class Gpt2Model(nn.Cell):
    """Token and position embeddings, blocks, final norm. Inputs: input_ids (B, S) int32. Outputs: (T, H)."""

    def __init__(self, config: Gpt2Config):
        super().__init__()
        init = Normal(config.initializer_range)
        self.hidden_size = config.hidden_size
        self.wte = Embedding(config.vocab_size, config.hidden_size, init)
        self.wpe = Embedding(config.max_position_embeddings, config.hidden_size, init)
        self.h = nn.CellList([Gpt2Block(config) for _ in range(config.num_hidden_layers)])
        self.ln_f = LayerNorm(config.hidden_size, config.layer_norm_epsilon)
        self.positions = Tensor(list(range(config.max_position_embeddings)), ms.int32)
        self.add_positions = P.Add()
        self.reshape = P.Reshape()

    def construct(self, input_ids, start=None):
        batch, length = input_ids.shape
        positions = self.positions[:length] if start is None else start + self.positions[:length]
        x = self.add_positions(self.wte(input_ids), self.wpe(positions))
        x = self.reshape(x, (batch * length, self.hidden_size))
        for block in self.h:
            x = block(x, batch, start)
        return self.ln_f(x)


class Gpt2ForCausalLM(nn.Cell):
    """Next-token logits.

    Inputs: input_ids (B, S) int32; start () int32 with a cache, else None. Outputs: (B, S, V).
    """

    def __init__(self, config: Gpt2Config):
        super().__init__()
        self.vocab_size = config.vocab_size
        self.transformer = Gpt2Model(config)
        self.tied_head = TiedHead()
        self.reshape = P.Reshape()

    def construct(self, input_ids, start=None):
        batch, length = input_ids.shape
        logits = self.tied_head(self.transformer(input_ids, start), self.transformer.wte.weight)
        return self.reshape(logits, (batch, length, self.vocab_size))


def build(config: Gpt2Config) -> Gpt2ForCausalLM:
    """The registry's entry."""
    return Gpt2ForCausalLM(config)
