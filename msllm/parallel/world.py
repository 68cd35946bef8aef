"""This process's place among the processes of a job."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from msllm.config.sections import ParallelConfig
from msllm.errors import InputError
from msllm.parallel.mesh import Mesh


@dataclass(frozen=True)
class World:
    """Rank and number of processes, and this rank's place along the data-parallel axis."""

    rank: int = 0
    size: int = 1
    data_rank: int = 0
    semi_auto: bool = False
    """Whether MindSpore's semi-automatic parallel mode cuts the graph, rather than this project's own AllReduce."""

    @property
    def is_main(self) -> bool:
        """Whether this process writes what is written once."""
        return self.rank == 0


def launched_processes() -> int:
    """Processes that msrun started, 1 without it. Imports no MindSpore."""
    return int(os.environ.get("MS_WORKER_NUM") or os.environ.get("RANK_SIZE") or 1)


def launched_rank() -> int:
    """This process's rank as msrun gives it (MS_NODE_ID where RANK_ID is absent), 0 without it."""
    return int(os.environ.get("RANK_ID") or os.environ.get("MS_NODE_ID") or 0)


def check_world(parallel: ParallelConfig) -> None:
    """Refuse a strategy for another number of processes than were started.

    Raises:
        InputError: with both numbers and the two ways to make them agree.
    """
    started, needed = launched_processes(), parallel.device_num
    if started != needed:
        raise InputError(
            f"parallel_config needs {needed} processes (data_parallel {parallel.data_parallel} x model_parallel "
            f"{parallel.model_parallel} x pipeline_stage {parallel.pipeline_stage}), but {started} were started; "
            f"start with `msrun --worker_num {needed} --local_worker_num {needed} ...` or set parallel_config.data_parallel "
            f"to {started}"
        )


def resolve_device_target(device_target: str) -> Literal["CPU", "Ascend"]:
    """`auto` -> Ascend where this host shows a card, CPU elsewhere. Imports no MindSpore."""
    if device_target == "CPU":
        return "CPU"
    return "Ascend" if device_target == "Ascend" or any(Path("/dev").glob("davinci[0-9]*")) else "CPU"


def init_world(parallel: ParallelConfig, device_target: str, strategies: Path | None = None) -> World:
    """Set Graph mode, the device and the parallel context; join the other processes if there are any.

    `strategies`: where MindSpore writes the strategy file of each rank that holds slices, ckpt_strategy_rank_<n>.ckpt, which
    its own tools for checkpoints (transform_checkpoints) want; None: nowhere.
    """
    import mindspore as ms
    from mindspore import communication

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device(resolve_device_target(device_target))
    check_world(parallel)
    if parallel.device_num == 1:
        return World()
    communication.init()
    rank, size = communication.get_rank(), communication.get_group_size()
    if ms.get_context("device_target") == "Ascend":
        set_semi_auto_parallel(parallel)
        if strategies is not None:
            file = strategies.absolute() / f"ckpt_strategy_rank_{rank}.ckpt"
            ms.set_auto_parallel_context(strategy_ckpt_config={"save_file": str(file), "only_trainable_params": False})
        return World(rank, size, Mesh.from_config(parallel).data_rank(rank), semi_auto=True)
    ms.set_auto_parallel_context(
        parallel_mode=ms.ParallelMode.DATA_PARALLEL, gradients_mean=True, device_num=size, global_rank=rank
    )
    return World(rank, size, rank)


def set_semi_auto_parallel(parallel: ParallelConfig) -> None:
    """Let MindSpore cut every graph by the strategies on its cells.

    Each rank feeds its own share of the batch, in the order of `Mesh.data_rank`.
    """
    import mindspore as ms

    options: dict[str, Any] = {
        "parallel_mode": ms.ParallelMode.SEMI_AUTO_PARALLEL,
        "dataset_strategy": ((parallel.data_parallel, 1),),
        "pipeline_stages": parallel.pipeline_stage,
    }
    if parallel.pipeline_stage > 1:
        # Of graphs that do not train: the first stage, which writes the metrics, would see 0 as the loss of an evaluation.
        options["pipeline_result_broadcast"] = True
    if parallel.enable_parallel_optimizer:
        options["enable_parallel_optimizer"] = True
        options["parallel_optimizer_config"] = parallel.parallel_optimizer_config.model_dump()
    if parallel.pp_interleave_num > 1:
        options["pipeline_config"] = {"pipeline_interleave": True, "pipeline_scheduler": "1f1b"}
    ms.set_auto_parallel_context(**options)
