"""Automatic mixed precision: which cells compute in which type. Weights stay in float32 at every level.

| level | matrix products | norms, softmax | loss | everything else |
|-------|-----------------|----------------|------|-----------------|
| O0    | float32         | float32        | fp32 | float32         |
| O1    | compute_dtype   | float32        | fp32 | as it comes     |
| O2    | compute_dtype   | float32        | fp32 | compute_dtype   |
| O3    | compute_dtype   | compute_dtype  | fp32 | compute_dtype   |

"As it comes": float32, but what follows a matrix product and meets no float32 number stays in compute_dtype, as SiLU does.
The framework's own O2 keeps only BatchNorm and LayerNorm in float32: an RMSNorm that sees 300 squares it to infinity in
float16 and returns zeros without a word. Here the layers say themselves what must stay (`keep_float32`).
"""

from __future__ import annotations

import mindspore as ms
from mindspore import nn

from msllm.layers.attention import SelfAttention

DTYPES = {"float32": ms.float32, "float16": ms.float16, "bfloat16": ms.bfloat16}


def apply_amp(network: nn.Cell, amp_level: str, compute_dtype: str) -> nn.Cell:
    """Set the precision of every cell of `network` in place and return it. The loss is a cell outside of it."""
    cells = [cell for _, cell in network.cells_and_names()]
    if amp_level == "O0":
        for cell in cells:
            if isinstance(cell, SelfAttention):
                cell.use_float32()
        return network
    dtype = DTYPES[compute_dtype]
    if amp_level == "O1":
        for cell in cells:
            if getattr(cell, "matrix_product", False):
                cell.to_float(dtype)
        return network
    # to_float reaches all descendants, so the whole comes first and the exceptions after it.
    network.to_float(dtype)
    if amp_level == "O2":
        for cell in cells:
            if getattr(cell, "keep_float32", False):
                cell.to_float(ms.float32)
    return network
