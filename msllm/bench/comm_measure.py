"""Times collectives on the ranks of a job."""

from __future__ import annotations

import os
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import Tensor, communication, ops

from msllm.bench.comm_plan import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER, SEND, Measurement, plan

WARMUP = 2


class Measurer:
    """Runs a plan on this rank. All ranks make the same calls in the same order.

    Args:
        device_target: CPU or Ascend.
        rounds: times that each collective runs; its median counts.
    """

    def __init__(self, device_target: str, rounds: int):
        ms.set_context(mode=ms.PYNATIVE_MODE)
        ms.set_device(device_target)
        communication.init()
        self.rank, self.size = communication.get_rank(), communication.get_group_size()
        self.rounds = rounds
        self._reduce, self._gather = ops.AllReduce(), ops.AllGather()
        self._names: dict[tuple[int, ...], str] = {tuple(range(self.size)): communication.GlobalComm.WORLD_COMM_GROUP}

    def servers(self) -> list[int]:
        """Of each rank, the number of its server, in the order of their first ranks; told apart by host name."""
        # float32 holds whole numbers up to 2 ** 24, and is what CPU ranks gather.
        own = zlib.crc32(os.uname().nodename.encode()) & 0xFFFFFF
        names = self._gather(Tensor([float(own)], ms.float32)).asnumpy().astype(int).tolist()
        order = list(dict.fromkeys(names))
        return [order.index(name) for name in names]

    def run(self, measurements: Sequence[Measurement], told: Callable[[int], None]) -> list[float]:
        """Seconds of each measurement, the slowest of its ranks'; `told(done)` is called after each."""
        own = []
        for done, measurement in enumerate(measurements):
            seconds = 0.0
            if measurement.ranks not in self._names and self.rank in measurement.ranks:
                self._make_group(measurement.ranks)
            self._barrier()
            if self.rank in measurement.ranks:
                seconds = self._time(measurement)
            own.append(seconds)
            told(done + 1)
        table = self._gather(Tensor(np.asarray([own], np.float32))).asnumpy()
        return [float(seconds) for seconds in table.max(axis=0)]

    def _make_group(self, ranks: tuple[int, ...]) -> None:
        name = (
            "bench_" + "_".join(map(str, ranks))
            if len(ranks) < 32
            else f"bench_{zlib.crc32(bytes(str(ranks), 'ascii'))}"
        )
        communication.create_group(name, list(ranks))
        self._names[ranks] = name

    def _barrier(self) -> None:
        self._reduce(Tensor([1.0], ms.float32)).asnumpy()

    def _time(self, measurement: Measurement) -> float:
        call = self._call(measurement)
        taken = []
        for _ in range(WARMUP + self.rounds):
            started = time.perf_counter()
            call()
            ms.runtime.synchronize()
            taken.append(time.perf_counter() - started)
        return statistics.median(taken[WARMUP:])

    def _call(self, measurement: Measurement) -> Callable[[], Any]:
        """The collective, on tensors that are there already."""
        count = len(measurement.ranks)
        # Rows of 4 KB: what is scattered must be divisible by the ranks.
        rows = max(1, measurement.size // 4096 // count)
        group = self._names[measurement.ranks]
        if measurement.kind == ALL_REDUCE:
            operator, tensor = ops.AllReduce(group=group), _ones(rows * count)
        elif measurement.kind == ALL_GATHER:
            operator, tensor = ops.AllGather(group=group), _ones(rows)
        elif measurement.kind == REDUCE_SCATTER:
            operator, tensor = ops.ReduceScatter(group=group), _ones(rows * count)
        else:
            assert measurement.kind == SEND
            tensor = _ones(rows * count)
            place = measurement.ranks.index(self.rank)
            if place == 1:
                receive = ops.Receive(0, 0, list(tensor.shape), ms.float32, group=group)
                return lambda: receive(tensor)
            operator = ops.Send(0, 1, group=group)
        return lambda: operator(tensor)


def _ones(rows: int) -> Tensor:
    """(rows, 1024) float32 on the device."""
    return Tensor(np.ones((rows, 1024), np.float32)) * 1.0


def measure(
    device_target: str,
    sizes: Sequence[int],
    rounds: int,
    more: Sequence[tuple[int, ...]],
    told: Callable[[int, int], None],
) -> tuple[int, list[int], list[Measurement], list[float]]:
    """This rank, the server of each rank, what was measured, and its seconds; `told(done, of)` shows progress."""
    measurer = Measurer(device_target, rounds)
    servers = measurer.servers()
    todo = plan(servers, sizes, device_target == "Ascend", more)
    seconds = measurer.run(todo, lambda done: told(done, len(todo)))
    return measurer.rank, servers, todo, seconds
