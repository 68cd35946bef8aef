"""The devices of a job as a grid of pipeline stage x data parallel x tensor parallel."""

from __future__ import annotations

from dataclasses import dataclass

from msllm.config.sections import ParallelConfig


@dataclass(frozen=True)
class Mesh:
    """Degrees of a strategy, and where each rank stands.

    MindSpore numbers ranks with tensor parallel innermost, so that a tensor-parallel group is a run of consecutive ranks and
    stays inside a server wherever model_parallel divides the server's devices; stages are the outermost.
    """

    data: int = 1
    """data_parallel."""
    tensor: int = 1
    """model_parallel."""
    stages: int = 1
    """pipeline_stage."""
    sequence_parallel: bool = False
    """use_seq_parallel: rows between the tensor-parallel blocks are cut over the tensor axis too."""
    vocab_cut: bool = True
    """Not vocab_emb_dp: embedding and head are cut along the vocabulary."""
    optimizer_parallel: bool = False
    """enable_parallel_optimizer."""

    @classmethod
    def from_config(cls, parallel: ParallelConfig) -> Mesh:
        """The mesh of a `parallel_config:` section."""
        return cls(
            parallel.data_parallel,
            parallel.model_parallel,
            parallel.pipeline_stage,
            parallel.use_seq_parallel,
            not parallel.vocab_emb_dp,
            parallel.enable_parallel_optimizer,
        )

    @property
    def size(self) -> int:
        """Number of devices."""
        return self.data * self.tensor * self.stages

    @property
    def rows(self) -> int:
        """Parts that the rows of the residual stream are cut in."""
        return self.data * self.tensor if self.sequence_parallel else self.data

    @property
    def vocab(self) -> int:
        """Parts that the vocabulary is cut in."""
        return self.tensor if self.vocab_cut else 1

    def stage(self, rank: int) -> int:
        """Pipeline stage of a rank."""
        return rank // (self.data * self.tensor)

    def data_rank(self, rank: int) -> int:
        """Place of a rank along the data-parallel axis: which share of the batch it reads."""
        return rank % (self.data * self.tensor) // self.tensor

    def tensor_rank(self, rank: int) -> int:
        """Place of a rank along the tensor-parallel axis."""
        return rank % self.tensor
