"""Run the graphs of all ranks as CPU processes, step by step, and keep all that they compute.

`execute` starts this file once per rank.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from msllm.errors import RunError
from msllm.files import write_atomic
from msllm.parallel.mesh import Mesh
from msllm.rehearsal.environment import cpu_environment
from msllm.rehearsal.rewrite import TRANSFER, rewrite
from msllm.testing.ranks import run_on_ranks


def execute(
    graphs: Sequence[Path], batches: np.ndarray, mesh: Mesh, *, folder: Path, timeout: float = 600.0
) -> list[Path]:
    """Run the training step of every rank, each in a process, on the same global batches as a single device would.

    Args:
        graphs: MindIR of each simulated rank's step, in rank order.
        batches: int32 (steps, global batch, tokens of a row).
        mesh: of the strategy; says which rows of a batch a rank reads.
        folder: for the graphs as they run, batches, answers and logs.
        timeout: seconds for all.

    Returns:
        For each rank an .npz of what `record` returns.

    Raises:
        RunError: a graph cannot run on CPU, a rank failed, or time ran out.
    """
    answers = place_job(graphs, batches, mesh, folder)
    run_jobs([folder], len(graphs), folder / "logs", timeout)
    return answers


def place_job(graphs: Sequence[Path], batches: np.ndarray, mesh: Mesh, folder: Path) -> list[Path]:
    """Put into `folder` all that the ranks need; the files that their answers will be in. For the rest see `execute`."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = [rewrite(graph, folder / f"cpu_{rank}.mindir", rank) for rank, graph in enumerate(graphs)]
    check_transfers(groups)
    for rank in range(len(graphs)):
        job = {"groups": groups[rank], "batches": f"batches_{mesh.data_rank(rank)}.npz"}
        write_atomic(folder / f"job_{rank}.json", json.dumps(job))
    for share, rows in enumerate(np.split(batches, mesh.data, axis=1)):
        save_arrays(folder / f"batches_{share}.npz", {"tokens": rows})
    answers = [folder / f"answers_{rank}.npz" for rank in range(len(graphs))]
    for file in answers:
        file.unlink(missing_ok=True)
    return answers


def run_jobs(folders: Sequence[Path], ranks: int, log_dir: Path, timeout: float = 600.0) -> None:
    """Run jobs that `place_job` has placed, one after the other in the same processes.

    Raises:
        RunError: a rank failed, or time ran out.
    """
    # run_on_ranks adds to this process's environment; a variable set to nothing is one that is not set.
    clean = cpu_environment()
    environment = {name: "" for name in os.environ if name not in clean} | clean
    run_on_ranks(
        Path(__file__),
        [folder.resolve() for folder in folders],
        ranks=ranks,
        log_dir=log_dir,
        timeout=timeout,
        cwd=folders[0],
        env=environment,
    )


def check_transfers(groups: Sequence[dict[str, list[int]]]) -> None:
    """Refuse transfers between stages that do not pair up, on which both ranks would wait or take one for another.

    Args:
        groups: for each rank, what `rewrite` returns.

    Raises:
        RunError: the first transfer that two ranks disagree on.
    """
    transfers: dict[tuple[int, int], dict[int, list[str]]] = {}
    for rank, own in enumerate(groups):
        for name, pair in own.items():
            if name.startswith(TRANSFER):
                transfers.setdefault((pair[0], pair[1]), {}).setdefault(rank, []).append(name)
    for (first, second), ends in sorted(transfers.items()):
        both = zip_longest(ends.get(first, []), ends.get(second, []), fillvalue="nothing")
        for number, (here, there) in enumerate(both, 1):
            if here != there:
                raise RunError(
                    f"ranks {first} and {second} disagree on transfer {number} between them (sender_receiver_tag_number): "
                    f"rank {first} has {here}, rank {second} {there}; they would wait for each other, or take one for another"
                )


def record(step: Any, batches: np.ndarray) -> dict[str, np.ndarray]:
    """Call a training step or an evaluation, or its graph, on batch after batch.

    Returns:
        `<number>/<name>` -> array for the outputs of each call, named as in StepOutput, or `loss` where there is one only, and
        the parameters after it; numbers start from 1.
    """
    from mindspore import Tensor

    from msllm.training.step import StepOutput

    answers: dict[str, np.ndarray] = {}
    for number, tokens in enumerate(batches, 1):
        outputs = step(Tensor(tokens))
        named = dict(zip(StepOutput._fields, outputs)) if isinstance(outputs, tuple) else {"loss": outputs}
        values = named | {p.name: p for p in step.get_parameters()}
        # Copies, as the arrays that MindSpore gives out share the memory of the parameters that the next step updates.
        answers |= {f"{number}/{name}": _array(value).copy() for name, value in values.items()}
    return answers


def _array(value: Any) -> np.ndarray:
    """A Tensor, or a number that the compiler knew."""
    return value.asnumpy() if hasattr(value, "asnumpy") else np.asarray(value)


def save_arrays(file: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write an .npz whole or not at all."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    write_atomic(file, buffer.getvalue())


def load_arrays(file: Path) -> dict[str, np.ndarray]:
    """All arrays of an .npz."""
    with np.load(file) as arrays:
        return dict(arrays)


def _run_rank(folders: Sequence[Path]) -> None:
    """What each process does. Groups are created in the same order everywhere, as each creation waits for its members."""
    import mindspore as ms
    from mindspore import communication, nn

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device("CPU")
    communication.init()
    rank = communication.get_rank()
    created: set[str] = set()
    for folder in folders:
        job = json.loads((folder / f"job_{rank}.json").read_text())
        for name, ranks in sorted(job["groups"].items()):
            if name not in created:
                communication.create_group(name, ranks)
        created |= set(job["groups"])
        step = nn.GraphCell(ms.load(str(folder / f"cpu_{rank}.mindir")))
        tokens = load_arrays(folder / job["batches"])["tokens"]
        save_arrays(folder / f"answers_{rank}.npz", record(step, tokens))


if __name__ == "__main__":
    _run_rank([Path(folder) for folder in sys.argv[1:]])
