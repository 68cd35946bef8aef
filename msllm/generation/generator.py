"""Next tokens from a model, with its keys and values cached on the device or computed anew each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor

from msllm.errors import InputError
from msllm.generation.sampling import Sampling
from msllm.layers.attention import CachedAttention, SelfAttention

SMALLEST_BUCKET = 16


def bucket(length: int, limit: int) -> int:
    """The length that `length` tokens are padded to, so that few graphs are compiled: a power of two, at most `limit`."""
    size = SMALLEST_BUCKET
    while size < length:
        size *= 2
    return min(size, limit)


def add_kv_cache(model: Any, batch: int, length: int) -> None:
    """Give every attention of `model` room for the keys and values of `length` tokens."""
    for _, cell in model.cells_and_names():
        if isinstance(cell, SelfAttention):
            cell.cache = CachedAttention(cell.num_heads, cell.num_kv_heads, cell.head_dim, batch, length)


class Generator:
    """Continues token sequences. Padding comes after the tokens, where causal attention never looks.

    Args:
        model: input_ids (1, S), start -> logits (1, S, V).
        max_length: tokens of prompt and continuation together, the model's max_position_embeddings at most.
        vocab_size: ids that the tokenizer knows; a model may have more, to divide well, and they are never drawn.
        use_cache: keep keys and values instead of computing them for the whole sequence at every token.
    """

    def __init__(self, model: Any, max_length: int, use_cache: bool = True, vocab_size: int | None = None):
        self.model, self.max_length, self.use_cache, self.vocab_size = model, max_length, use_cache, vocab_size
        self.model.set_train(False)
        if use_cache:
            add_kv_cache(model, 1, max_length)

    def generate(
        self,
        prompt: Sequence[int],
        max_new_tokens: int,
        sampling: Sampling,
        stop_ids: Sequence[int] = (),
        seed: int = 0,
    ) -> Iterator[int]:
        """New tokens one by one, until a stop id (which is not given out), max_new_tokens or max_length.

        Raises:
            InputError: an empty prompt, or one that leaves no room.
        """
        if not prompt:
            raise InputError("the prompt has no tokens; give at least one")
        if len(prompt) >= self.max_length:
            raise InputError(
                f"the prompt has {len(prompt)} tokens, with at least one more that is over the model's "
                f"max_position_embeddings ({self.max_length}); shorten it"
            )
        random = np.random.default_rng(seed)
        tokens = list(prompt)
        logits = self._logits_after(tokens, 0)
        for _ in range(min(max_new_tokens, self.max_length - len(prompt))):
            token = sampling.choose(logits, random)
            if token in stop_ids:
                return
            yield token
            tokens.append(token)
            if len(tokens) < self.max_length:
                logits = self._logits_after(tokens, len(tokens) - 1 if self.use_cache else 0)

    def _logits_after(self, tokens: list[int], start: int) -> np.ndarray:
        """Logits (V,) that follow the last token; the tokens before `start` are in the cache."""
        new = tokens[start:]
        size = 1 if self.use_cache and start else bucket(len(new), self.max_length)
        ids = np.zeros((1, size), np.int32)
        ids[0, : len(new)] = new
        if self.use_cache:
            logits = self.model(Tensor(ids), Tensor(start, ms.int32))
        else:
            logits = self.model(Tensor(ids))
        return logits[0, len(new) - 1].asnumpy().astype(np.float32)[: self.vocab_size]
