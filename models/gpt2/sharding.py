"""How GPT-2 lies on a mesh of devices: dp data parallel, tp tensor parallel, pp pipeline stages.

| cell                  | weight              | bias     | activations out                 | stage   |
|-----------------------|---------------------|----------|---------------------------------|---------|
| wte                   | (V/tp, H)           |          | (B/dp, S, H)                    | first   |
| wpe                   | (positions, H)      |          | (S, H)                          | first   |
| ln_1, ln_2            | (H)                 | (H)      | (T/rows, H)                     | layer's |
| q_proj, k_proj, v_proj| (H/tp, H)           | (H/tp)   | (T/dp, H/tp)                    | layer's |
| attention             |                     |          | (B/dp, S, N/tp, D)              |         |
| o_proj                | (H, H/tp)           | (H)      | (T/rows, H), summed over tp     |         |
| c_fc                  | (F/tp, H)           | (F/tp)   | (T/dp, F/tp)                    |         |
| c_proj                | (H, F/tp)           | (H)      | (T/rows, H), summed over tp     |         |
| ln_f                  | (H)                 | (H)      | (T/rows, H)                     | last    |
| tied_head             | wte's               |          | (T/dp, V/tp)                    | last    |

rows = dp, with use_seq_parallel dp x tp. With vocab_emb_dp wte is whole on every device.
"""

from __future__ import annotations

from models.gpt2.model import Gpt2ForCausalLM
from msllm.parallel import strategy
from msllm.parallel.mesh import Mesh
from msllm.parallel.placement import Parts


def shard(model: Gpt2ForCausalLM, mesh: Mesh) -> None:
    """Put the layout of the table on `model`, in place."""
    decoder = model.transformer
    strategy.embedding(decoder.wte, mesh)
    decoder.wpe.set_strategy((1, 1), (1,))
    decoder.add_positions.shard(((mesh.data, 1, 1), (1, 1)))
    for block in decoder.h:
        strategy.norm(block.ln_1, mesh)
        strategy.attention(block.attn, mesh)
        strategy.residual(block.add_attention, mesh)
        strategy.norm(block.ln_2, mesh)
        strategy.column(block.mlp.c_fc, mesh)
        strategy.row(block.mlp.c_proj, mesh)
        block.mlp.set_strategy((mesh.data, mesh.tensor))
        strategy.residual(block.add_mlp, mesh)
    strategy.norm(decoder.ln_f, mesh)
    strategy.head(model.tied_head, mesh)


def parts(model: Gpt2ForCausalLM) -> Parts:
    """What pipeline stages and recomputation deal out."""
    decoder = model.transformer
    return Parts(
        first=[decoder.wte, decoder.wpe],
        layers=list(decoder.h),
        last=[decoder.ln_f, model.tied_head],
        cheap=[[block.ln_1, block.ln_2, block.mlp.gelu] for block in decoder.h],
    )
