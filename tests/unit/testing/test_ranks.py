from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
import pytest

from msllm.errors import InputError, RunError
from msllm.testing.ranks import free_port, installed_script, run_on_ranks

WORKER = "import os, sys, time\nif os.environ['MS_ROLE'] == 'MS_SCHED': sys.exit()\nrank = os.environ['RANK_ID']\n"


def write_script(folder: Path, body: str) -> Path:
    script = folder / "script.py"
    script.write_text(WORKER + body)
    return script


@pytest.mark.distributed
def test_each_rank_runs_the_script_and_its_output_comes_back_in_rank_order(tmp_path: Path):
    script = write_script(tmp_path, "print(rank, sys.argv[1], os.environ['COLOUR'], os.getcwd(), sys.prefix)")
    logs = run_on_ranks(
        script, ["a b"], ranks=3, log_dir=tmp_path / "logs", timeout=120, cwd=tmp_path, env={"COLOUR": "blue"}
    )

    assert logs == [f"{rank} a b blue {tmp_path} {sys.prefix}\n" for rank in range(3)]
    assert (tmp_path / "logs" / "scheduler.log").exists()


@pytest.mark.distributed
def test_a_rank_that_fails_is_named_with_the_end_of_its_log(tmp_path: Path):
    body = "print('all is well', flush=True)\nif rank == '1': raise ValueError('the moon is full')\ntime.sleep(60)"
    with pytest.raises(RunError) as error:
        run_on_ranks(write_script(tmp_path, body), log_dir=tmp_path / "logs", timeout=120)
    text = str(error.value)
    assert "script.py on 2 ranks: a rank failed" in text
    assert f"rank 1, end of {tmp_path / 'logs' / 'worker_1.log'}" in text and "ValueError: the moon is full" in text
    assert "rank 0" not in text


@pytest.mark.distributed
def test_what_does_not_end_is_killed_with_all_its_processes(tmp_path: Path):
    body = "print('I am', os.getpid(), flush=True)\ntime.sleep(1000)"
    with pytest.raises(RunError, match=r"not done after 5 s[\s\S]*rank 0[\s\S]*I am[\s\S]*rank 1") as error:
        run_on_ranks(write_script(tmp_path, body), log_dir=tmp_path / "logs", timeout=5)
    pids = [int(line.split()[2]) for line in str(error.value).splitlines() if "I am" in line]
    assert len(pids) == 2 and not any(psutil.pid_exists(pid) for pid in pids)


def test_a_script_that_is_not_there_is_refused_before_anything_starts(tmp_path: Path):
    with pytest.raises(InputError, match="nothing.py: no such script"):
        run_on_ranks(tmp_path / "nothing.py", log_dir=tmp_path / "logs")
    assert not (tmp_path / "logs").exists()


def test_free_ports_and_installed_scripts_can_be_used():
    assert 1024 <= free_port() < 65536
    assert os.access(installed_script("msrun"), os.X_OK)
