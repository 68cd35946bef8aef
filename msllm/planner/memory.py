"""Device memory of each pipeline stage by arithmetic: what MindSpore's memory planner will ask for, within 15%.

`msllm rehearse memory` measures it with that planner; tests/unit/planner/test_memory.py holds the two together. What is counted,
and why, is said where it is counted: everything that the training step keeps until its backward pass, as the planner places it
on one device.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from msllm.config.sections import ParallelOptimizerConfig, RunConfig
from msllm.config.stages import layer_places, micro_batches, recomputed_layers, stage_layer_counts
from msllm.planner.costs import COMPUTE_BYTES, micro_batch_size

FLOAT32 = 4
SOFTMAX_NUMBERS = 2 * 8
"""Flash attention keeps the maximum and the sum of each row of scores, 8 times over, in float32."""
LOGITS_AT_LOSS = 4
"""Arrays of the logits' size, in float32, while the loss is differentiated: logits less the largest, their exponentials, the
labels as one-hot rows, and the gradient."""
LOGITS_BEFORE_LOSS = 3
"""The same before the gradient is there."""


@dataclass(frozen=True)
class StageMemory:
    """Peak on a device of one pipeline stage, in bytes."""

    stage: int
    weights: int
    optimizer: int
    gradients: int
    """Sums that outlive a micro batch; at one micro batch none is alive at the peak."""
    activations: int
    """What the forward pass keeps of all micro batches under way, and weights in the precision of the matrix products."""
    working: int
    """What is alive for the loss and for the layer that is being differentiated."""

    @property
    def total(self) -> int:
        """All of it."""
        return self.weights + self.optimizer + self.gradients + self.activations + self.working


@dataclass(frozen=True)
class _Weight:
    shape: tuple[int, ...]
    cut: int | None = None
    """The axis that tensor parallelism cuts."""


def estimate_memory(config: RunConfig) -> list[StageMemory]:
    """For each pipeline stage, of a configuration that `msllm check` finds legal."""
    return [_Stage(config, stage).memory() for stage in range(config.parallel_config.pipeline_stage)]


class _Stage:
    """The sizes of one stage."""

    def __init__(self, config: RunConfig, stage: int):
        self.config, self.model, self.parallel = config, config.model, config.parallel_config
        self.stage, self.last = stage, stage == self.parallel.pipeline_stage - 1
        self.layers = stage_layer_counts(self.model.num_hidden_layers, self.parallel)[stage]
        self.tensor = self.parallel.model_parallel
        self.tokens = micro_batch_size(config) * config.data.seq_length
        self.compute = COMPUTE_BYTES[config.training.compute_dtype] if config.training.amp_level != "O0" else FLOAT32

    def memory(self) -> StageMemory:
        """At the moment when most is alive."""
        weights = list(self._weights())
        held = sum(self._held(weight) for weight in weights)
        sums, several = 0, micro_batches(self.config) > 1 or self.parallel.pipeline_stage > 1
        if several:
            # They stay whole on every data-parallel rank unless the user asks for shards of them.
            shard = self.parallel.enable_parallel_optimizer and self._details().gradient_accumulation_shard
            sums = held if shard else sum(math.prod(_slice(weight, self.tensor)) for weight in weights)
        kept = self._in_flight() + self._copies(weights)
        at_loss = self._working(at_loss=True)
        at_end = self._working(at_loss=False)
        if not several:
            # The other peak, where the last gradients come: all of them are alive, summed over their ranks already, and what
            # the forward pass had kept is gone.
            at_end += held * FLOAT32 - kept
        return StageMemory(
            self.stage,
            weights=held * FLOAT32,
            optimizer=2 * held * FLOAT32,
            gradients=sums * FLOAT32,
            activations=kept,
            working=max(at_loss, at_end),
        )

    def _weights(self) -> Iterator[_Weight]:
        model, shape, hidden = self.model, self.model.layer_shape, self.model.hidden_size
        vocab = _Weight((model.vocab_size, hidden), None if self.parallel.vocab_emb_dp else 0)
        norm = [_Weight((hidden,))] * (2 if shape.biased else 1)
        if self.stage == 0:
            yield vocab
            if not shape.rotary:
                yield _Weight((model.max_position_embeddings, hidden))
        for _ in range(self.layers):
            yield from (*norm, *norm)
            for width in (shape.query, shape.key_value, shape.key_value, *[shape.inner] * (2 if shape.gated else 1)):
                yield _Weight((width, hidden), 0)
                if shape.biased:
                    yield _Weight((width,), 0)
            for width in (shape.query, shape.inner):
                yield _Weight((hidden, width), 1)
                if shape.biased:
                    yield _Weight((hidden,))
        if self.last:
            yield from norm
            if not model.ties_embeddings:
                yield vocab

    def _held(self, weight: _Weight) -> int:
        """Elements of a weight on a device. Optimizer parallel cuts the first axis once more, where it can
        (parallel/slices.py)."""
        held = _slice(weight, self.tensor)
        same = self.parallel.data_parallel * (1 if weight.cut is not None else self.tensor)
        large = math.prod(weight.shape) * FLOAT32 >= self._details().parallel_optimizer_threshold * 1024
        cut = self.parallel.enable_parallel_optimizer and large and held[0] % same == 0
        return math.prod(held) // (same if cut else 1)

    def _details(self) -> ParallelOptimizerConfig:
        return self.parallel.parallel_optimizer_config

    def _copies(self, weights: list[_Weight]) -> int:
        """Matrices in the precision of the products: cast in the forward pass, kept for the backward pass. The embedding is
        looked up in float32."""
        if self.compute == FLOAT32:
            return 0
        matrices = [weight for weight in weights if len(weight.shape) == 2]
        looked_up = (1 if self.model.layer_shape.rotary else 2) if self.stage == 0 else 0
        tied = [matrices[0]] if self.stage == 0 and self.last and self.model.ties_embeddings else []
        return sum(math.prod(_slice(weight, self.tensor)) for weight in [*matrices[looked_up:], *tied]) * self.compute

    def _in_flight(self) -> int:
        """What the forward passes of all micro batches under way have kept: 1F1B lets a stage begin as many as there are
        stages from it to the end (Narayanan et al. 2021, also for interleaved stages)."""
        parallel, chunks = self.parallel, self.parallel.pp_interleave_num
        after = parallel.pipeline_stage - self.stage
        begun = after if chunks == 1 else 2 * (after - 1) + (chunks - 1) * parallel.pipeline_stage + 1
        under_way = min(begun, micro_batches(self.config) * chunks) if parallel.pipeline_stage > 1 else 1
        return self._kept_by_layers() * under_way // chunks

    def _kept_by_layers(self) -> int:
        """Of one micro batch, over the layers of the stage."""
        full, selective = recomputed_layers(self.model.num_hidden_layers, self.parallel, self.config.recompute_config)
        places = layer_places(self.model.num_hidden_layers, self.parallel)
        own = {layer for layer, (stage, _) in enumerate(places) if stage == self.stage}
        again, some = len(full & own), len(selective & own)
        rest = len(own) - again - some
        return again * self._row() + some * (self._layer() - self._cheap()) + rest * self._layer()

    def _row(self, cut: bool = True) -> int:
        """One array of the residual stream; use_seq_parallel cuts it over the tensor-parallel ranks."""
        width = self.model.hidden_size * self.compute
        return self.tokens * width // (self.tensor if cut and self.parallel.use_seq_parallel else 1)

    def _layer(self) -> int:
        """What a layer keeps: the residual stream before each of its halves and the two norms of it; queries, keys and values,
        values once more in the layout of attention, queries and keys after rotation, attention's result; and what is between
        the matrices of the feed-forward block."""
        shape, model = self.model.layer_shape, self.model
        wide = shape.query + 2 * shape.key_value + shape.key_value + shape.query
        wide += shape.query + shape.key_value if shape.rotary else 0
        wide += (4 if shape.gated else 2) * shape.inner
        attention = SOFTMAX_NUMBERS * FLOAT32 * model.num_attention_heads
        if self.compute == FLOAT32:
            # Flash attention takes half precision only; without it the scores are kept.
            attention = self.config.data.seq_length * FLOAT32 * model.num_attention_heads
        return 4 * self._row() + self.tokens * (wide * self.compute + attention) // self.tensor

    def _cheap(self) -> int:
        """What select_recompute saves of a layer: the activation and the gated product. Norms of a fused kernel stay."""
        shape = self.model.layer_shape
        return (2 if shape.gated else 1) * self.tokens * shape.inner * self.compute // self.tensor

    def _working(self, at_loss: bool) -> int:
        """Beside what is kept: at the loss, or while a layer is differentiated."""
        # Gradients of the residual stream and of what lies between a layer's matrices.
        wide = self.tokens * self.model.layer_shape.inner * self.compute // self.tensor
        working = 4 * self._row() + 5 * wide
        results = self._communicated()
        if at_loss and self.last:
            cut = 1 if self.parallel.vocab_emb_dp else self.tensor
            logits = self.tokens * self.model.vocab_size * FLOAT32 // cut
            return max(LOGITS_AT_LOSS * logits + working, LOGITS_BEFORE_LOSS * logits + results + 3 * self._row())
        embedding = self.model.vocab_size * self.model.hidden_size * FLOAT32 if self.stage == 0 else 0
        if not self.parallel.vocab_emb_dp:
            embedding //= self.tensor
        recomputed = self._layer() if self._recomputes() else 0
        return working + embedding + (recomputed or results)

    def _recomputes(self) -> bool:
        return bool(recomputed_layers(self.model.num_hidden_layers, self.parallel, self.config.recompute_config)[0])

    def _communicated(self) -> int:
        """Results of the forward pass's collectives between tensor-parallel ranks, which live until their stream is waited
        for."""
        return (2 * self.layers + 1) * self._row(cut=False) if self.tensor > 1 else 0


def _slice(weight: _Weight, tensor: int) -> tuple[int, ...]:
    return tuple(length // (tensor if axis == weight.cut else 1) for axis, length in enumerate(weight.shape))
