"""What runs in a process of its own, so that a crash of MindSpore is a finding and not the end of the doctor.

    python probes.py graph CPU|Ascend
    msrun ... probes.py allreduce CPU|Ascend

The last line printed is one JSON document.
"""

from __future__ import annotations

import json
import sys

SIZE = 64


def graph(device: str) -> dict[str, object]:
    """Compile and run a product of matrices whose result is known."""
    import mindspore as ms
    import numpy as np

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device(device)
    left = np.arange(SIZE * SIZE, dtype=np.float32).reshape(SIZE, SIZE) % 7
    right = np.eye(SIZE, dtype=np.float32) * 2

    @ms.jit
    def product(x: ms.Tensor, y: ms.Tensor) -> ms.Tensor:
        return ms.ops.matmul(x, y)

    result = product(ms.Tensor(left), ms.Tensor(right)).asnumpy()
    return {"mindspore": ms.__version__, "right": bool(np.array_equal(result, left * 2))}


def allreduce(device: str) -> dict[str, object]:
    """Sum rank + 1 over all ranks."""
    import mindspore as ms
    import numpy as np
    from mindspore import communication

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device(device)
    communication.init()
    rank, size = communication.get_rank(), communication.get_group_size()

    class Sum(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.all_reduce = ms.ops.AllReduce()

        def construct(self, x: ms.Tensor) -> ms.Tensor:
            return self.all_reduce(x)

    result = Sum()(ms.Tensor(np.full(SIZE, rank + 1, np.float32))).asnumpy()
    return {"rank": rank, "size": size, "right": bool((result == size * (size + 1) / 2).all())}


if __name__ == "__main__":
    sys.path.pop(0)  # this folder: its modules are not to be taken for others of their names
    print(json.dumps({"graph": graph, "allreduce": allreduce}[sys.argv[1]](sys.argv[2])), flush=True)
