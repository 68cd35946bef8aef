"""Cells that models are written with. They know shapes and dtypes, and nothing of devices or parallelism.

Shapes in docstrings: B batch, S sequence, T = B * S tokens, H hidden size, N query heads, K key/value heads, D head size,
F feed-forward size, V vocabulary. Hidden states travel as (T, H): one row a token.

Parallelism is put on from outside too: `set_strategy` tells a cell in how many parts each axis is cut (see
`msllm/parallel/strategy.py`), and a weight that is cut remembers it as `cut`.

Precision (`msllm/training/amp.py`) is put on from outside; a cell that must stay in float32 says `keep_float32 = True`,
one whose only work is a matrix product says `matrix_product = True`.
"""
