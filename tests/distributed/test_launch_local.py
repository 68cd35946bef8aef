"""Jobs of one host: how they end, and that nothing is left of them. Ranks are a few lines, so that this is quick."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import tiny_runs
from launch_jobs import PATIENCE, STUB, Job, running

from msllm.launch.network import local_addresses

pytestmark = pytest.mark.distributed


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launch_local")
    return tiny_runs.write_config(folder / "run.yaml", tiny_runs.write_data(folder / "data"))


def start(config: Path, folder: Path, *more: str) -> Job:
    words = ["launch", "-c", str(config), "-o", str(folder / "run"), "-s", "parallel_config.data_parallel=2", *more]
    return Job([*STUB, *words], folder)


def tell(folder: Path, *names: str) -> None:
    for name in names:
        (folder / "run" / name).touch()


def family(job: Job) -> list[psutil.Process]:
    """The launcher's ranks, and what they have left behind: a `sleep` of each in a session of its own."""
    found = psutil.Process(job.process.pid).children(recursive=True)
    assert len(found) >= 5  # the scheduler, two ranks, two left behind
    return found


def all_are_gone(processes: list[psutil.Process]) -> bool:
    limit = time.monotonic() + PATIENCE
    while any(p.is_running() and p.status() != psutil.STATUS_ZOMBIE for p in processes):
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
    return True


def test_a_job_that_ends_well_is_exit_code_0_and_one_json_document(config: Path, tmp_path: Path):
    words = [
        "launch",
        "-c",
        str(config),
        "-o",
        str(tmp_path / "run"),
        "--json",
        "-s",
        "parallel_config.data_parallel=2",
    ]
    environment = tiny_runs.environment()
    process = subprocess.Popen([*STUB, *words], stdout=subprocess.PIPE, cwd=tmp_path, env=environment)
    while not (tmp_path / "run/at_1").exists() and process.poll() is None:
        time.sleep(0.02)
    tell(tmp_path, "finish")
    out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0
    assert json.loads(out) == {"run": str(tmp_path / "run"), "attempts": 1, "checkpoint": None}


def test_p17_the_first_failing_rank_is_named_with_its_error_and_the_rest_is_ended(config: Path, tmp_path: Path):
    job = start(config, tmp_path)
    running(job, tmp_path)
    processes = family(job)
    tell(tmp_path, "fail_1")
    assert job.end() == 1
    log = tmp_path / "run/launch/attempt_0/worker_1.log"
    assert f"error: rank 1 ended with exit code 1: disk of rank 1 is full (log: {log})" in job.text()
    assert "rank 0 runs" in job.text() and "rank 1 runs" not in job.text()  # rank 0 is shown
    assert "rank 1 runs with resume no" in log.read_text()
    assert all_are_gone(processes)


def test_ctrl_c_ends_all_ranks_with_exit_code_130(config: Path, tmp_path: Path):
    job = start(config, tmp_path)
    running(job, tmp_path)
    processes = family(job)
    job.process.send_signal(signal.SIGINT)
    assert job.end() == 130
    assert "Ctrl-C on node 0" in job.text()
    assert "error: stopped by Ctrl-C; there is no checkpoint" in job.text()
    assert "Traceback" not in job.text()
    assert all_are_gone(processes)


def test_a_launcher_that_is_killed_takes_its_ranks_along(config: Path, tmp_path: Path):
    job = start(config, tmp_path)
    running(job, tmp_path)
    processes = family(job)
    ranks = [process for process in processes if process.cmdline()[0] != "sleep"]
    job.process.kill()
    job.end()
    assert all_are_gone(ranks)
    for process in set(processes) - set(ranks):  # nobody is there any more who could end them
        process.kill()


def test_a_host_file_with_this_host_alone_needs_no_ssh(config: Path, tmp_path: Path):
    own = [address for address in local_addresses() if "." in address and not address.startswith("127.")]
    if not own:
        pytest.skip("this host has no address but loopback's")
    (tmp_path / "hosts.txt").write_text(f"here {own[0]} 2\n")
    job = start(config, tmp_path, "--hosts", str(tmp_path / "hosts.txt"), "--ssh", "false")
    running(job, tmp_path)
    job.process.send_signal(signal.SIGINT)
    assert job.end() == 130
    assert "error: stopped by Ctrl-C; there is no checkpoint" in job.text()


def test_a_failed_job_starts_again_and_resumes(config: Path, tmp_path: Path):
    job = start(config, tmp_path, "--max-restarts", "1")
    running(job, tmp_path)
    tell(tmp_path, "fail_1")
    job.wait_until(lambda: "restart 1 of 1" in job.text())
    (tmp_path / "run/fail_1").unlink()
    log = tmp_path / "run/launch/attempt_1/worker_1.log"
    job.wait_until(lambda: log.exists() and "runs with" in log.read_text())
    tell(tmp_path, "finish")
    code = job.end()
    assert code == 0, job.text()
    assert "rank 1 runs with resume auto" in log.read_text()


def test_p18_a_job_that_hangs_is_ended_where_the_user_wants_it(config: Path, tmp_path: Path):
    job = start(config, tmp_path, "--hang-timeout", "2")
    running(job, tmp_path)
    tell(tmp_path, "hang_0", "hang_1")
    assert job.end() == 1
    assert "error: no rank has moved for 2 s (--hang-timeout): 2 ranks, in the step, step" in job.text()


def test_p17_a_rank_that_writes_an_error_and_lives_on_is_told(config: Path, tmp_path: Path):
    job = start(config, tmp_path)
    running(job, tmp_path)
    tell(tmp_path, "complain_1")
    job.wait_until(lambda: "warning: rank 1 has written an error and runs on; its log: " in job.text())
    tell(tmp_path, "finish")
    assert job.end() == 0
