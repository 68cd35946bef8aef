"""The scripts that start jobs show with --dry-run what `msllm launch` has checked."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import tiny_runs

ROOT = Path(__file__).parents[3]
SCRIPTS = ("msrun_single.sh", "msrun_multi_node.sh", "ranktable_launch.sh", "slurm_launch.sh")
TABLE = ROOT / "rank_tables/examples/a2_1x8.json"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("launch_scripts")
    tiny_runs.write_config(folder / "run.yaml", tiny_runs.write_data(folder / "data"))
    return folder


def script(folder: Path, name: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("MS_", "GLOG_", "RANK_", "HCCL_"))
    }
    command = ["bash", str(ROOT / "scripts" / name), *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=60, env={**inherited, **environment}
    )


def options(ranks: int) -> list[str]:
    return ["--config", "run.yaml", "--set", f"parallel_config.data_parallel={ranks}", "--output", "new"]


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_shows_the_line_to_type(folder: Path, name: str):
    done = script(folder, name, "--help")
    assert done.returncode == 0
    assert f"scripts/{name} " in done.stdout


def test_one_server_with_msrun(folder: Path):
    done = script(folder, "msrun_single.sh", *options(2), "--dry-run")
    assert done.returncode == 0, done.stderr
    line = done.stdout.strip()
    assert line.startswith(
        "+ env MS_TOPO_TIMEOUT=600 msrun --worker_num 2 --local_worker_num 2 --master_addr 127.0.0.1"
    )
    assert line.endswith(f"--output {folder}/new --resume no")
    assert not (folder / "new").exists()


def test_several_servers_with_msrun(folder: Path):
    done = script(folder, "msrun_multi_node.sh", "2", "1", "10.0.0.1", *options(2), "--dry-run")
    assert done.returncode == 0, done.stderr
    for words in ("--worker_num 2 --local_worker_num 1", "--master_addr 10.0.0.1", "--node_rank 1"):
        assert words in done.stdout


def test_a_mistake_is_told_as_by_the_command(folder: Path):
    done = script(folder, "msrun_single.sh", *options(3), "--dry-run")
    assert (done.returncode, done.stdout) == (2, "")
    assert "global_batch_size (8) must be divisible by data_parallel (3)" in done.stderr
    done = script(folder, "msrun_multi_node.sh", "2", "--dry-run")
    assert done.returncode == 1 and "needs NODES NODE_RANK MASTER_ADDR" in done.stderr


def test_one_rank_is_nothing_for_msrun(folder: Path):
    done = script(folder, "msrun_single.sh", *options(1), "--dry-run")
    assert done.returncode == 2
    assert "one rank needs only msllm train" in done.stderr


def test_a_rank_table_alone(folder: Path):
    done = script(folder, "ranktable_launch.sh", str(TABLE), *options(8), "--dry-run")
    assert done.returncode == 0, done.stderr
    assert f"RANK_SIZE=8 RANK_TABLE_FILE={TABLE} RANK_ID=7 DEVICE_ID=7 " in done.stdout
    assert "MS_ROLE" not in done.stdout


def test_slurm_starts_one_launcher_a_node(folder: Path):
    done = script(folder, "slurm_launch.sh", "--dry-run", *options(2), SLURM_JOB_NUM_NODES="3", MSLLM_ROOT=str(ROOT))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [f"--node-rank {node} " in line for node, line in enumerate(lines)] == [True] * 3
    assert "--nodes 3" in lines[0] and "--save-on-stop" in lines[0]


def test_slurm_runs_the_launcher_with_the_number_of_its_node(folder: Path, tmp_path: Path):
    """A small srun stands for Slurm's: it runs its command for every node."""
    tools, root = tmp_path / "tools", tmp_path / "project"
    msllm = root / ".venv/bin/msllm"
    for path in (tools, msllm.parent):
        path.mkdir(parents=True)
    (tools / "srun").write_text('#!/bin/bash\nshift 2\nfor node in 0 1; do SLURM_NODEID=$node "$@"; done\n')
    (tools / "scontrol").write_text("#!/bin/sh\nprintf 'first\\nsecond\\n'\n")
    msllm.write_text('#!/bin/sh\necho "$@"\n')
    for path in (tools / "srun", tools / "scontrol", msllm):
        path.chmod(0o755)
    environment = {"PATH": f"{tools}:/usr/bin:/bin", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[0-1]"}
    done = script(folder, "slurm_launch.sh", "-c", "my run.yaml", MSLLM_ROOT=str(root), **environment)
    more = "--nodes 2 --master-addr first --max-restarts 3 --save-on-stop -c my run.yaml"
    assert done.stdout.splitlines() == [f"launch --node-rank {node} {more}" for node in (0, 1)], done.stderr
