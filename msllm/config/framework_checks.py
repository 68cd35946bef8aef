"""How many devices MindSpore's parallel compiler takes for Ascend, and in which groups.

Its `device_manager.cc` (2.9) still thinks of servers of 8 cards in two halves. What breaks its rules ends after minutes in
"Parallel init failed" or "Create communication group failed", so it is said here. CPU's data parallelism has no such rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msllm.config.origin import Fault
from msllm.config.sections import ParallelConfig, TrainingConfig
from msllm.hardware.chips import CHIPS

_PER_SERVER = 8


def needs_ascend(training: TrainingConfig, parallel: ParallelConfig) -> bool:
    """Whether a run cannot be one of CPU processes: by what it asks for or by what it is cut into."""
    named = training.device_target == "Ascend" or (training.chip in CHIPS and training.chip != "CPU")
    return named or parallel.model_parallel > 1 or parallel.pipeline_stage > 1 or parallel.enable_parallel_optimizer


def layout_of_run(training: TrainingConfig, parallel: ParallelConfig) -> Iterator[Fault]:
    """`layout` for a run that is for Ascend without doubt; `device_target: auto` may still be CPU."""
    if needs_ascend(training, parallel):
        yield from layout(parallel)


def layout(parallel: ParallelConfig) -> Iterator[Fault]:
    """The number of devices, then the groups of each axis."""
    devices = parallel.device_num
    names = ("data_parallel", "model_parallel", "pipeline_stage")
    fields = tuple(f"parallel_config.{name}" for name in names)
    if devices % _PER_SERVER and devices not in (1, 2, 4):
        product = " x ".join(f"{name} ({getattr(parallel, name)})" for name in names)
        below = devices // _PER_SERVER * _PER_SERVER
        near = f"{below} or {below + _PER_SERVER}" if below else "1, 2, 4 or 8"
        yield Fault(
            f"{product} = {devices} must be 1, 2, 4 or a multiple of 8, which is what MindSpore takes on Ascend; "
            f"choose degrees whose product is {near}",
            fields,
        )
        return
    for axis, groups in rank_groups(parallel).items():
        wrong = next((group for group in groups if not _is_feasible(group)), None)
        if wrong is not None:
            shown = " ".join(map(str, wrong[:8])) + (" ..." if len(wrong) > 8 else "")
            yield Fault(
                f"{axis} ({getattr(parallel, axis)}) makes the group of ranks {shown}, which MindSpore does not create: the "
                f"part of a group in each server of 8 must be the same 1, 2, 4 or 8 ranks; set {axis} to a power of two",
                fields,
            )
            # The groups of outer axes are strides over the inner ones and mostly fail with them.
            return


def rank_groups(parallel: ParallelConfig) -> dict[str, list[tuple[int, ...]]]:
    """Axis -> all of its groups, for axes with a degree above 1; innermost first, as MindSpore numbers ranks."""
    tensor, data, stages = parallel.model_parallel, parallel.data_parallel, parallel.pipeline_stage
    axes = {"model_parallel": (tensor, 1), "data_parallel": (data, tensor), "pipeline_stage": (stages, tensor * data)}
    return {
        axis: [
            tuple(first + i * stride for i in range(size))
            for first in range(parallel.device_num)
            if first // stride % size == 0
        ]
        for axis, (size, stride) in axes.items()
        if size > 1
    }


def _is_feasible(group: Sequence[int]) -> bool:
    """MindSpore's IsFeasibleDeiveList: the same places in every server, and a set of places that it knows."""
    places: dict[int, list[int]] = {}
    for rank in group:
        places.setdefault(rank // _PER_SERVER, []).append(rank % _PER_SERVER)
    first, *others = places.values()
    return all(other == first for other in others) and _is_feasible_in_server(first)


def _is_feasible_in_server(places: list[int]) -> bool:
    half = _PER_SERVER // 2
    if len(places) in (1, _PER_SERVER):
        return True
    if len(places) == half:
        is_half = places[-1] - places[0] == half - 1 and (places[0] == 0 or places[-1] == _PER_SERVER - 1)
        return is_half or (places[3] % half == places[1] % half and places[2] % half == places[0] % half)
    if len(places) == 2:
        return places[1] - places[0] == half or (places[0] < half) == (places[1] < half)
    return False
