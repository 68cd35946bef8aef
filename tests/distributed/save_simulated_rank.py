"""One simulated rank of a job: resume a run, write what was read as a checkpoint of all ranks, train and evaluate on.

    python save_simulated_rank.py CONFIG CHECKPOINT RUN

Simulated ranks cannot talk to each other: they agree through files in RUN.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import tiny_runs

from msllm.data.manifest import read_manifest
from msllm.parallel.world import init_world
from msllm.registry import build_model, sharding
from msllm.training.agreement import Agreement
from msllm.training.run_directory import RunDirectory
from msllm.training.trainer import Trainer


class FileAgreement(Agreement):
    """Waits for a file of every rank where the real one waits for a collective."""

    def __init__(self, folder: Path, rank: int, size: int):
        self.folder, self.rank, self.size, self.calls = folder, rank, size, 0
        self._is_main = rank == 0

    def _sum(self, value: int) -> int:
        self.calls += 1
        (self.folder / f"agree_{self.calls}_{self.rank}").write_text(str(value))
        files = [self.folder / f"agree_{self.calls}_{rank}" for rank in range(self.size)]
        end = time.monotonic() + 120
        while not all(file.exists() and file.read_text() for file in files):
            assert time.monotonic() < end, f"rank {self.rank} waits for others"
            time.sleep(0.05)
        return sum(int(file.read_text()) for file in files)


def main(config_file: Path, checkpoint: Path, run: Path) -> None:
    config = tiny_runs.load(config_file).config
    directory = RunDirectory(run)
    world = init_world(config.parallel_config, "Ascend", directory.strategies)
    directory.create()
    data = read_manifest(Path(config.data.train_dataset))
    trainer = Trainer(config, build_model(config.model), data, data, directory, world, sharding(config.model))
    trainer.agreement = FileAgreement(run, world.rank, world.size)
    trainer.resume(checkpoint)
    trainer._save()
    trainer.run()
    sys.stdout.flush()
    os._exit(0)  # MindSpore may crash while it ends under simulation


if __name__ == "__main__":
    main(*(Path(argument) for argument in sys.argv[1:]))
