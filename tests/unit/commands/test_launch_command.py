"""`msllm launch` before anything starts: what each node would run, and every mistake at once."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiny_runs

from msllm.cli import main

ROOT = Path(__file__).parents[3]
TABLE = ROOT / "rank_tables/examples/a2_2x8.json"
RECIPE = ("HCCL_", "ASCEND_", "MS_", "GLOG_", "RANK_")


@dataclass(frozen=True)
class Said:
    """What the command ended with."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        return [line.removeprefix("error: ") for line in self.err.splitlines() if line.startswith("error: ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("launch")
    tiny_runs.write_config(folder / "run.yaml", tiny_runs.write_data(folder / "data"))
    return folder


@pytest.fixture
def launch(folder: Path, tmp_path: Path, monkeypatch, capfd):
    """The command by its entry point, in this process, with no variable of a job around it."""
    for name in os.environ:
        if name.startswith(RECIPE):
            monkeypatch.delenv(name)

    def run(*arguments: str | Path, ranks: int = 2) -> Said:
        argv = ["msllm", "launch", "-c", "run.yaml", "-o", str(tmp_path / "new")]
        argv += ["-s", f"parallel_config.data_parallel={ranks}", *map(str, arguments)]
        monkeypatch.setattr(sys, "argv", argv)
        monkeypatch.chdir(folder)
        try:
            main()
        except SystemExit as end:
            captured = capfd.readouterr()
            return Said(int(end.code or 0), captured.out, captured.err)
        captured = capfd.readouterr()
        return Said(0, captured.out, captured.err)

    return run


def plan(said: Said) -> list[dict]:
    assert said.code == 0, said.err
    return json.loads(said.out)["nodes"]


def test_a_dry_run_shows_every_process_with_its_environment_and_makes_nothing(launch, tmp_path: Path):
    [node] = plan(launch("--dry-run", "--json", "--master-port", "9000", "--", "--callback", "my:Callback"))
    assert [process["name"] for process in node["processes"]] == ["scheduler", "worker_0", "worker_1"]
    common = {
        "RANK_SIZE": "2",
        "MS_WORKER_NUM": "2",
        "MS_SCHED_HOST": "127.0.0.1",
        "MS_SCHED_PORT": "9000",
        "MS_TOPO_TIMEOUT": "600",
    }
    assert node["processes"][0]["environment"] == common | {"MS_ROLE": "MS_SCHED", "RANK_ID": "0"}
    own = {"MS_ROLE": "MS_WORKER", "MS_NODE_ID": "1", "RANK_ID": "1", "DEVICE_ID": "1"}
    assert node["processes"][2]["environment"] == common | own
    command = node["processes"][2]["command"]
    assert command[1:3] == [str(Path(sys.executable).with_name("msllm")), "train"]
    assert command[-4:] == ["--callback", "my:Callback", "--resume", "no"]
    assert node["msrun"][:5] == ["msrun", "--worker_num", "2", "--local_worker_num", "2"]
    assert node["environment"] == {"MS_TOPO_TIMEOUT": "600"}
    assert not (tmp_path / "new").exists()


def test_a_dry_run_for_people_is_lines_for_a_shell(launch):
    said = launch("--dry-run")
    assert said.code == 0
    lines = said.out.splitlines()
    assert lines[0].startswith("# node 0 of 1: ")
    assert lines[1] == "export MS_TOPO_TIMEOUT=600"
    assert all(line.endswith("2>&1 &") for line in lines[2:5])
    assert lines[5].startswith("# the same, unwatched, by msrun: msrun --worker_num 2")


def test_a_later_start_has_logs_of_its_own(launch, tmp_path: Path):
    for name in ("attempt_0", "attempt_9", "attempt_x"):
        (tmp_path / "new/launch" / name).mkdir(parents=True)
    [node] = plan(launch("--dry-run", "--json", "--save-on-stop"))
    assert node["processes"][1]["log"] == f"{tmp_path}/new/launch/attempt_10/worker_0.log"
    assert node["processes"][1]["command"][-4:-2] == ["--callback", "msllm.training.stop_when_asked:StopWhenAsked"]


def test_one_rank_needs_no_scheduler(launch):
    [node] = plan(launch("--dry-run", "--json", ranks=1))
    assert [process["name"] for process in node["processes"]] == ["worker_0"]
    assert node["processes"][0]["environment"] == {}
    assert node["msrun"] is None


def test_one_command_a_node_numbers_its_ranks_in_its_block(launch):
    more = ("--nodes", "2", "--node-rank", "1", "--master-addr", "10.9.8.7")
    [node] = plan(launch("--dry-run", "--json", *more, ranks=4))
    assert [process["name"] for process in node["processes"]] == ["worker_2", "worker_3"]
    assert [process["environment"]["DEVICE_ID"] for process in node["processes"]] == ["0", "1"]
    assert node["processes"][0]["environment"]["MS_SCHED_HOST"] == "10.9.8.7"
    assert node["msrun"][9:13] == ["--node_rank", "1", "--cluster_time_out", "600"]


def test_over_ssh_every_node_gets_the_recipe_and_its_own_options(launch, tmp_path: Path, monkeypatch):
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "1200")
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("node-a 10.9.8.7 2\nnode-b 10.9.8.8 2\n")
    first, second = plan(launch("--dry-run", "--json", "--hosts", hosts, "--max-restarts", "3", ranks=4))
    assert first["host"] == "node-a" and first["remote"][:1] == ["ssh"] and first["remote"][-2] == "node-a"
    script = second["remote"][-1]
    assert script.startswith("cd ")
    for words in ("HCCL_CONNECT_TIMEOUT=1200", "PATH=", "--node-rank 1", "--master-addr 10.9.8.7", "--max-restarts 3"):
        assert words in script
    assert [process["name"] for process in second["processes"]] == ["worker_2", "worker_3"]


def test_the_way_into_a_host_is_the_users(launch, tmp_path: Path):
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("a 10.9.8.7\nb 10.9.8.8\n")
    nodes = plan(launch("--dry-run", "--json", "--hosts", hosts, "--ssh", "docker exec {host} sh -c"))
    assert nodes[1]["remote"][:5] == ["docker", "exec", "b", "sh", "-c"]


def test_p15_rank_table_start_gives_every_rank_its_table_and_its_physical_device(launch):
    more = (
        "--nodes",
        "2",
        "--node-rank",
        "1",
        "--master-addr",
        "10.0.0.1",
        "--start",
        "rank-table",
        "--rank-table",
        TABLE,
    )
    [node] = plan(launch("--dry-run", "--json", *more, "-s", "training.global_batch_size=16", ranks=16))
    expected = {"RANK_ID": "9", "DEVICE_ID": "1", "RANK_SIZE": "16", "RANK_TABLE_FILE": str(TABLE)}
    assert node["processes"][1]["environment"] == expected
    assert node["msrun"] is None


@pytest.mark.parametrize("by", ["option", "environment"])
def test_p15_a_table_of_another_size_is_refused(launch, monkeypatch, by: str):
    if by == "environment":
        monkeypatch.setenv("RANK_TABLE_FILE", str(TABLE))
    said = launch("--dry-run", *(["--rank-table", TABLE] if by == "option" else []))
    assert said.code == 2
    assert said.errors[0].startswith(f"{TABLE}: holds 16 ranks, but the job has 2")


def test_hosts_are_listed_in_the_order_of_the_table(launch, tmp_path: Path):
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("b 10.0.0.2 8\na 10.0.0.1 8\n")
    more = ("--hosts", hosts, "--rank-table", TABLE, "-s", "training.global_batch_size=16")
    said = launch("--dry-run", *more, ranks=16)
    assert said.code == 2
    assert "has its ranks on 10.0.0.1, 10.0.0.2, in this order, but the hosts are 10.0.0.2, 10.0.0.1" in said.errors[0]


def test_all_mistakes_are_told_at_once(launch, monkeypatch):
    monkeypatch.setenv("HCCL_CONNECT_TIMEOUT", "60")
    said = launch("--nodes", "3", "--workers", "4", "--resume", "nowhere", "-s", "data.train_dataset=gone")
    assert said.code == 2
    starts = [
        "--workers (4) must be the 2 ranks that parallel_config needs",
        "4 ranks cannot be spread evenly over 3 nodes",
        "--master-addr is missing",
        "--node-rank is missing",
        "HCCL_CONNECT_TIMEOUT (60) must be a whole number from 120 to 7200 seconds",
        "gone: no such folder",
        "nowhere: no such checkpoint folder",
    ]
    for start in starts:
        assert any(error.startswith(start) for error in said.errors), (start, said.errors)


def test_mistakes_of_the_configuration_come_with_the_others(launch):
    said = launch("--dry-run", "-s", "training.train_stepz=3", "--nodes", "2")
    assert said.code == 2
    assert "unknown key train_stepz" in said.errors[0]
    assert any(error.startswith("--master-addr is missing") for error in said.errors)


@pytest.mark.parametrize("node_rank", ["2", "-1"])
def test_a_node_rank_beyond_the_nodes(launch, node_rank: str):
    said = launch("--dry-run", "--nodes", "2", "--node-rank", node_rank, "--master-addr", "10.0.0.1")
    assert said.errors == [f"--node-rank ({node_rank}) must be from 0 to 1, as there are 2 nodes (--nodes)"]


def test_p3_a_name_without_an_address_is_a_message(launch, monkeypatch):
    def unknown(*arguments, **more):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr("socket.getaddrinfo", unknown)
    said = launch("--dry-run", "--nodes", "2", "--node-rank", "0", "--master-addr", "node-zero")
    assert said.code == 2
    assert said.errors == [
        "--master-addr node-zero: this name has no address here (Name or service not known); give the IP address of node 0, or "
        "put the name into /etc/hosts of every node"
    ]


def test_a_node_that_cannot_know_its_place_does_not_wait_for_the_others(launch):
    for place in (
        ["--node-rank", "1"],
        ["--node-rank", "7", "--master-addr", "192.0.2.1"],
        ["--master-addr", "192.0.2.1"],
    ):
        assert launch("--nodes", "2", *place).code == 2


def test_a_loopback_master_address_is_no_address_for_several_nodes(launch):
    said = launch("--dry-run", "--nodes", "2", "--node-rank", "0", "--master-addr", "127.0.0.1")
    assert said.code == 2
    assert "which means another host on every node" in said.errors[0]


def test_p28_a_taken_port_is_told_with_who_has_it(launch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = launch("--master-port", port)
    assert said.code == 2
    assert said.errors[0].startswith(f"--master-port {port} on 127.0.0.1 is in use by process {os.getpid()} (")


def test_a_run_that_is_there_is_not_begun_again(launch, tmp_path: Path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new/metrics.jsonl").touch()
    said = launch()
    assert said.code == 2
    assert said.errors == [
        f"{tmp_path}/new: holds a run already; add --resume auto to go on with it, or choose another --output"
    ]


def test_a_launcher_does_not_start_inside_msrun(launch, monkeypatch):
    monkeypatch.setenv("MS_ROLE", "MS_WORKER")
    said = launch()
    assert said.code == 2
    assert "MS_ROLE is set (MS_WORKER): this is the environment of a rank" in said.errors[0]


def test_rank_table_start_is_for_npus(launch):
    said = launch("--start", "rank-table")
    assert said.code == 2
    assert any("--start rank-table needs --rank-table FILE" in error for error in said.errors)
    assert any("--start rank-table is for NPUs" in error for error in said.errors)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--", "--resume", "auto"], "--resume stands after --; give it to msllm launch itself, before --"),
        (["extra"], "unexpected argument extra; options of msllm train stand after --"),
    ],
)
def test_options_of_the_wrong_place(launch, arguments: list[str], expected: str):
    assert launch(*arguments).errors == [expected]


def test_a_host_that_is_listed_twice_or_too_small(launch, tmp_path: Path):
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("a 10.9.8.7 1\nb 10.9.8.7 2\n")
    said = launch("--dry-run", "--hosts", hosts, "--nodes", "2", ranks=4)
    assert said.code == 2
    assert said.errors == [
        "--nodes: --hosts says it for all nodes; leave it out",
        f"{hosts}:1: host a: has 1 slots, but every node gets 2 ranks; the nodes of a job are equal",
        f"{hosts}:2: host b: 10.9.8.7 is listed twice",
    ]


def test_errors_are_a_json_document_where_that_is_wanted(launch):
    said = launch("--json", "--nodes", "2", "--node-rank", "7", "--master-addr", "10.0.0.1", "--dry-run")
    assert json.loads(said.out)["error"]["exit_code"] == 2
