"""How Llama lies on a mesh of devices: dp data parallel, tp tensor parallel, pp pipeline stages.

| cell                         | weight                    | activations out                    | stage  |
|------------------------------|---------------------------|------------------------------------|--------|
| embed_tokens                 | (V/tp, H)                 | (T/rows, H)                        | first  |
| input_layernorm, post_...    | (H)                       | (T/rows, H)                        | its    |
| q_proj, k_proj, v_proj       | (heads D/tp, H)           | (T/dp, heads D/tp)                 | layer's|
| attention                    |                           | (B/dp, S, heads/tp, D)             |        |
| o_proj                       | (H, N D/tp)               | (T/rows, H), summed over tp        |        |
| gate_proj, up_proj           | (F/tp, H)                 | (T/dp, F/tp)                       |        |
| down_proj                    | (H, F/tp)                 | (T/rows, H), summed over tp        |        |
| norm                         | (H)                       | (T/rows, H)                        | last   |
| lm_head                      | (V/tp, H)                 | (T/dp, V/tp)                       | last   |

rows = dp, with use_seq_parallel dp x tp. With vocab_emb_dp embedding and head are whole on every device.
"""

from __future__ import annotations

from models.llama.model import LlamaForCausalLM
from msllm.parallel import strategy
from msllm.parallel.mesh import Mesh
from msllm.parallel.placement import Parts


def shard(model: LlamaForCausalLM, mesh: Mesh) -> None:
    """Put the layout of the table on `model`, in place."""
    decoder = model.model
    strategy.embedding(decoder.embed_tokens, mesh)
    for layer in decoder.layers:
        strategy.norm(layer.input_layernorm, mesh)
        strategy.attention(layer.self_attn, mesh)
        strategy.residual(layer.add_attention, mesh)
        strategy.norm(layer.post_attention_layernorm, mesh)
        strategy.column(layer.mlp.gate_proj, mesh)
        strategy.column(layer.mlp.up_proj, mesh)
        strategy.row(layer.mlp.down_proj, mesh)
        layer.mlp.set_strategy((mesh.data, mesh.tensor))
        strategy.residual(layer.add_mlp, mesh)
    strategy.norm(decoder.norm, mesh)
    strategy.head(model.tied_head if model.tied else model.lm_head, mesh)


def parts(model: LlamaForCausalLM) -> Parts:
    """What pipeline stages and recomputation deal out."""
    decoder = model.model
    return Parts(
        first=[decoder.embed_tokens],
        layers=list(decoder.layers),
        last=[decoder.norm, model.tied_head if model.tied else model.lm_head],
        cheap=[
            [layer.input_layernorm, layer.post_attention_layernorm, layer.mlp.silu, layer.mlp.mul]
            for layer in decoder.layers
        ],
    )
