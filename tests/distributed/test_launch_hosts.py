"""A job over two hosts, which are network namespaces: what goes wrong is named, and no process stays behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny_runs
from launch_jobs import STUB, Job, running
from network_hosts import Hosts, two_hosts

from msllm.checkpoint.state import complete_checkpoints, step_of
from msllm.testing.ranks import installed_script

pytestmark = [pytest.mark.distributed, pytest.mark.fault]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with two_hosts(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("launch_config")
    return tiny_runs.write_config(folder / "run.yaml", tiny_runs.write_data(folder / "data"), 100_000)


def options(config: Path, run: Path) -> list[str]:
    words = ["launch", "-c", str(config), "-o", str(run), "-s", "parallel_config.data_parallel=2"]
    return [*words, "--node-timeout", "60"]


def over_ssh(hosts: Hosts, config: Path, folder: Path, *more: str, program: list[str] = STUB) -> Job:
    """As a user starts it, from a third machine."""
    words = [*options(config, folder / "run"), "--hosts", str(hosts.file(folder)), "--ssh", f"sh {hosts.ssh} {{host}}"]
    return Job([*program, *words, *more], folder)


def node(
    hosts: Hosts, config: Path, folder: Path, index: int, node_rank: int, name: str, *more: str, nodes: int = 2
) -> Job:
    """One command on one host, as a scheduler starts it."""
    words = [*options(config, folder / "run"), "--nodes", str(nodes), "--node-rank", str(node_rank)]
    words += ["--master-addr", hosts.addresses[0], *more]
    return Job(hosts.on(index, " ".join(["exec", *STUB, *words])), folder, name)


def nothing_is_left(hosts: Hosts) -> None:
    """The last ones may be in the middle of ending."""
    limit = time.monotonic() + 20.0
    while any(hosts.processes(index) for index in (0, 1)):
        assert time.monotonic() < limit, [hosts.processes(index) for index in (0, 1)]
        time.sleep(0.05)


def command(pid: int) -> list[bytes]:
    return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")


def rank_process(hosts: Hosts, index: int) -> int:
    for pid in hosts.processes(index):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if b"MS_ROLE=MS_WORKER" in environment and b"sleep" not in command(pid):
            return pid
    raise AssertionError("no rank there")


TRAINING = [str(installed_script("msllm"))]
programs = pytest.mark.parametrize(
    "program",
    [pytest.param(STUB, id="few lines"), pytest.param(TRAINING, id="training", marks=pytest.mark.extended)],
)


def start(hosts: Hosts, config: Path, folder: Path, program: list[str], *more: str) -> Job:
    """A job whose ranks have made some steps, and have told of them."""
    job = over_ssh(hosts, config, folder, *more, program=program)
    if program == STUB:
        running(job, folder, steps=40)
    else:
        job.wait_until(lambda: newest(folder) >= 10)
    return job


@programs
def test_a_cut_link_ends_both_hosts(hosts: Hosts, config: Path, tmp_path: Path, program: list[str]):
    job = start(hosts, config, tmp_path, program, "--node-timeout", "3")
    hosts.cut()
    assert job.end() == 1
    assert f"error: node 1 ({hosts.names[1]}, 10.77.0.2) is lost: no sign of it for 3 s; the host is down" in job.text()
    assert "its last step was" in job.text()
    nothing_is_left(hosts)


@programs
def test_a_killed_rank_is_named_and_takes_the_job_along(hosts: Hosts, config: Path, tmp_path: Path, program: list[str]):
    job = start(hosts, config, tmp_path, program)
    os.kill(rank_process(hosts, 1), signal.SIGKILL)
    assert job.end() == 1
    assert f"error: rank 1 on node 1 ({hosts.names[1]}, 10.77.0.2) was killed by SIGKILL" in job.text()
    assert f"(log: {tmp_path}/run/launch/attempt_0/worker_1.log)" in job.text()
    nothing_is_left(hosts)


@programs
@pytest.mark.parametrize("index", [0, 1])
def test_a_host_that_goes_down_ends_the_other(
    hosts: Hosts, config: Path, tmp_path: Path, index: int, program: list[str]
):
    job = start(hosts, config, tmp_path, program)
    for pid in hosts.processes(index):
        os.kill(pid, signal.SIGKILL)
    assert job.end() == 1
    lost = (
        "error: node 0 (" if index == 0 else f"error: node 1 ({hosts.names[1]}, 10.77.0.2) is lost: its launcher ended"
    )
    assert lost in job.text()
    nothing_is_left(hosts)


def test_a_doubled_node_rank_refuses_the_job_on_all_nodes(hosts: Hosts, config: Path, tmp_path: Path):
    more = ("-s", "parallel_config.data_parallel=3", "-s", "training.global_batch_size=9")
    places = [(0, 0, "first"), (1, 1, "second"), (1, 1, "third")]
    jobs = [node(hosts, config, tmp_path, *place, *more, nodes=3) for place in places]
    codes = [job.end() for job in jobs]
    assert codes == [2, 2, 2], [job.text() for job in jobs]
    place = f"node 1 ({hosts.names[1]}, 10.77.0.2)"
    for job in jobs:
        assert f"error: --node-rank 1 was given to two nodes: {place} and {place}; give each its own" in job.text()
    nothing_is_left(hosts)


def test_p28_a_taken_port_refuses_the_job_on_all_nodes_and_names_who_has_it(hosts: Hosts, config: Path, tmp_path: Path):
    listen = f"import socket, time; s = socket.create_server(('{hosts.addresses[0]}', 8118)); print('ready'); time.sleep(600)"
    holder = subprocess.Popen(hosts.on(0, f'exec {sys.executable} -uc "{listen}"'), stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None and holder.stdout.readline()
        jobs = [node(hosts, config, tmp_path, index, index, str(index)) for index in (0, 1)]
        assert [job.end() for job in jobs] == [2, 2]
        expected = (
            f"error: node 0 ({hosts.names[0]}): --master-port 8118 on 10.77.0.1 is in use by process {holder.pid} ("
        )
        for job in jobs:
            assert expected in job.text()
            assert "choose another port" in job.text()
    finally:
        holder.kill()
        holder.wait()
    nothing_is_left(hosts)


def newest(folder: Path) -> int:
    return max((step_of(path) for path in complete_checkpoints(folder / "run" / "checkpoints")), default=0)


def test_training_over_two_hosts_goes_on_after_a_killed_rank_and_saves_when_it_is_stopped(
    hosts: Hosts, config: Path, tmp_path: Path
):
    """MindSpore on two hosts: rank 1 is killed, the job starts again from its checkpoint, and Ctrl-C saves the last step."""
    more = ("--max-restarts", "1", "--save-on-stop", "-s", "checkpoint.save_steps=50", "-s", "checkpoint.keep_last=3")
    job = over_ssh(hosts, config, tmp_path, *more, program=TRAINING)
    job.wait_until(lambda: newest(tmp_path) >= 50)
    os.kill(rank_process(hosts, 1), signal.SIGKILL)
    job.wait_until(lambda: "restart 1 of 1: going on from" in job.text())
    resumed = newest(tmp_path)
    assert f"going on from {tiny_runs.checkpoint(tmp_path / 'run', resumed)}" in job.text()
    job.wait_until(lambda: newest(tmp_path) > resumed)
    job.process.send_signal(signal.SIGINT)
    assert job.end() == 130
    nothing_is_left(hosts)

    losses = tiny_runs.losses(tmp_path / "run")
    last = newest(tmp_path)
    assert [step for step, _ in losses] == list(range(1, last + 1))  # none is missing, none was made twice
    assert f"error: rank 1 on node 1 ({hosts.names[1]}, 10.77.0.2) was killed by SIGKILL" in job.text()
    assert f"last checkpoint: {tiny_runs.checkpoint(tmp_path / 'run', last)}" in job.text()
    assert "Ctrl-C on node 0" in job.text()
    for attempt in (0, 1):
        logs = tmp_path / "run" / "launch" / f"attempt_{attempt}"
        assert sorted(path.name for path in logs.iterdir()) == ["scheduler.log", "worker_0.log", "worker_1.log"]
    for index in (0, 1):
        recipe = (tmp_path / f"run/launch/node_{index}/environment.sh").read_text()
        assert "export MS_TOPO_TIMEOUT=600   # as msrun sets it" in recipe and "export GLOG_v=3" in recipe


def test_without_root_these_tests_say_why_they_are_skipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(pytest.skip.Exception, match="needs root, for network namespaces"), two_hosts(tmp_path):
        pass
