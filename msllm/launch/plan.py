"""What a job consists of, and what each of its processes is told: the environment that msrun would give it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

SCHEDULER = -1
"""In the place of a rank: the process that brings the ranks together."""

Start = Literal["dynamic", "rank-table"]


@dataclass(frozen=True)
class Process:
    """One process of a node."""

    rank: int
    """SCHEDULER for the scheduler."""
    command: tuple[str, ...]
    environment: Mapping[str, str]
    """Added to what the node's processes have in common."""

    @property
    def name(self) -> str:
        """worker_<rank> or scheduler, as msrun names logs."""
        return "scheduler" if self.rank == SCHEDULER else f"worker_{self.rank}"


@dataclass(frozen=True)
class Job:
    """A job as one of its nodes sees it. Every node has the same number of ranks, numbered in blocks by node_rank."""

    workers: int
    """Ranks of all nodes."""
    command: tuple[str, ...]
    """What every rank runs, without --resume."""
    output: Path
    resume: str = "no"
    nodes: int = 1
    node_rank: int = 0
    master_addr: str = "127.0.0.1"
    """Of node 0."""
    master_port: int = 8118
    """Where MindSpore's scheduler listens."""
    control_port: int = 8119
    """Where the launcher of node 0 listens for those of the other nodes."""
    start: Start = "dynamic"
    rank_table: Path | None = None
    device_ids: tuple[int, ...] | None = None
    """With rank-table start: DEVICE_ID of each rank of this node; None: counted from 0."""
    topo_timeout: int = 600
    """Seconds in which all ranks must have found each other."""
    first_log: int = 0
    """Number of the folder that the logs of the first attempt go to: earlier starts of the run have theirs."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment that all processes of the node get beside what they inherit."""

    @property
    def local_workers(self) -> int:
        """Ranks of this node."""
        return self.workers // self.nodes

    @property
    def ranks(self) -> range:
        """Ranks of this node."""
        return range(self.node_rank * self.local_workers, (self.node_rank + 1) * self.local_workers)

    @property
    def has_scheduler(self) -> bool:
        """Whether MindSpore needs its scheduler: not for one rank, and not where a rank table says all that it knows."""
        return self.start == "dynamic" and self.workers > 1

    def logs(self, number: int | None = None) -> Path:
        """Folder of the logs of an attempt, the first one where no number is given."""
        return self.output / "launch" / f"attempt_{self.first_log if number is None else number}"

    def train_command(self, resume: str) -> tuple[str, ...]:
        """What every rank runs."""
        return (*self.command, "--resume", resume)

    def processes(self, resume: str) -> list[Process]:
        """The processes of this node, the scheduler first."""
        command = self.train_command(resume)
        common = self._common()
        found = []
        if self.has_scheduler and self.node_rank == 0:
            found.append(Process(SCHEDULER, command, common | {"MS_ROLE": "MS_SCHED", "RANK_ID": "0"}))
        for local, rank in enumerate(self.ranks):
            own: dict[str, str] = {}
            if self.workers > 1:
                device = self.device_ids[local] if self.device_ids and self.start == "rank-table" else local
                own = {"RANK_ID": str(rank), "DEVICE_ID": str(device)}
            if self.has_scheduler:
                own |= {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": str(rank)}
            found.append(Process(rank, command, common | own))
        return found

    def _common(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if self.workers > 1:
            found["RANK_SIZE"] = str(self.workers)
        if self.has_scheduler:
            found |= {
                "MS_WORKER_NUM": str(self.workers),
                "MS_SCHED_HOST": self.master_addr,
                "MS_SCHED_PORT": str(self.master_port),
                "MS_TOPO_TIMEOUT": str(self.topo_timeout),
            }
        if self.rank_table is not None:
            found["RANK_TABLE_FILE"] = str(self.rank_table)
        return found

    def msrun(self, resume: str) -> tuple[str, ...] | None:
        """The msrun line that starts the same processes, without supervision; None where msrun is not the way."""
        if not self.has_scheduler:
            return None
        line = ["msrun", "--worker_num", str(self.workers), "--local_worker_num", str(self.local_workers)]
        line += ["--master_addr", self.master_addr, "--master_port", str(self.master_port)]
        if self.nodes > 1:
            line += ["--node_rank", str(self.node_rank)]
        line += ["--cluster_time_out", str(self.topo_timeout), "--join", "True"]
        line += ["--log_dir", str(self.output / "launch" / "msrun")]
        if self.rank_table is not None:
            line += ["--rank_table_file", str(self.rank_table)]
        return (*line, *self.train_command(resume)[1:])


def shell(words: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """A line for a shell."""
    settings = [f"{name}={shlex.quote(value)}" for name, value in (environment or {}).items()]
    return " ".join([*settings, shlex.join(words)])
