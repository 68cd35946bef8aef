"""What `msllm launch` was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from msllm.launch.plan import Start

SSH = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=15 {host}"


@dataclass(frozen=True)
class Options:
    """The options of the command by their names; those of `msllm train` are kept as its arguments."""

    train: tuple[str, ...]
    """Arguments of msllm train: --config, --parallel, --set, --output."""
    more: tuple[str, ...]
    """Its other arguments, which stand after --."""
    output: Path
    resume: str = "no"
    workers: int | None = None
    nodes: int | None = None
    node_rank: int | None = None
    master_addr: str | None = None
    master_port: int | None = None
    control_port: int | None = None
    hosts: Path | None = None
    ssh: str = SSH
    start: Start = "dynamic"
    rank_table: Path | None = None
    max_restarts: int = 0
    save_on_stop: bool = False
    hang_timeout: float | None = None
    join_timeout: float = 300.0
    node_timeout: float = 30.0
    log_mb: int = 64
    show_all: bool = False
    as_json: bool = False

    def launch_arguments(self, nodes: int, node_rank: int, master_addr: str) -> list[str]:
        """The command line of one of the nodes that this one starts over ssh, after `msllm launch`."""
        words = ["--nodes", str(nodes), "--node-rank", str(node_rank), "--master-addr", master_addr, "--watch-stdin"]
        given = {
            "--resume": self.resume,
            "--workers": self.workers,
            "--master-port": self.master_port,
            "--control-port": self.control_port,
            "--start": self.start,
            "--rank-table": self.rank_table,
            "--max-restarts": self.max_restarts,
            "--hang-timeout": self.hang_timeout,
            "--join-timeout": self.join_timeout,
            "--node-timeout": self.node_timeout,
            "--log-mb": self.log_mb,
        }
        for name, value in given.items():
            words += [] if value is None else [name, str(value)]
        flags = {"--save-on-stop": self.save_on_stop, "--show-all": self.show_all, "--json": self.as_json}
        return words + [name for name, wanted in flags.items() if wanted]
