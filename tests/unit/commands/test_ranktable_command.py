"""`msllm ranktable`: what reaches the terminal, exit codes, JSON, and strategies laid out by the mesh."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from msllm.cli import main
from msllm.commands import ranktable
from msllm.commands.placed import placed_ranks

ROOT = Path(__file__).parents[3]
EXAMPLES = ROOT / "rank_tables" / "examples"
TWO = str(EXAMPLES / "a2_2x8.json")


@pytest.fixture
def run(monkeypatch, capsys):
    """Call `msllm ranktable` in this process: (exit code, stdout, stderr)."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["msllm", "ranktable", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call


@pytest.fixture
def strategy(tmp_path):
    """A strategy file of some degrees."""

    def write(**degrees: object) -> Path:
        path = tmp_path / "strategy.yaml"
        path.write_text("parallel_config:\n" + "".join(f"  {key}: {value}\n" for key, value in degrees.items()))
        return path

    return write


@pytest.mark.parametrize(
    ("hosts", "table"), [("hosts_a3.yaml", "a3_2x16"), ("hosts_cross_cluster.yaml", "cross_cluster_2x8")]
)
def test_shipped_host_files_make_the_shipped_tables(run, tmp_path, hosts, table):
    output = tmp_path / "t.json"
    assert run("generate", "--hosts", EXAMPLES / hosts, "-o", output)[0] == 0
    assert output.read_text() == (EXAMPLES / f"{table}.json").read_text()


def test_one_server_from_its_hccn_conf(run, tmp_path):
    conf, output = tmp_path / "hccn.conf", tmp_path / "t.json"
    conf.write_text("".join(f"address_{i}=192.168.1.{i + 8}\n" for i in range(8)))
    code, out, err = run("generate", "--hccn-conf", conf, "--server-ip", "10.0.0.1", "-o", output)
    assert (code, err) == (0, "")
    assert out == f"wrote {output}: version 1.0, 1 server, ranks 0 to 7\n"
    assert output.read_text() == (EXAMPLES / "a2_1x8.json").read_text()
    code, out, _ = run("generate", "--hccn-conf", conf, "--server-ip", "10.0.0.1", "--visible-devices", "6,7", "-o",
                       tmp_path / "two.json", "--json")  # fmt: skip
    assert json.loads(out) == {
        "output": str(tmp_path / "two.json"),
        "version": "1.0",
        "servers": ["10.0.0.1"],
        "ranks": 2,
        "notes": [],
    }


def test_many_servers_from_collected_files_and_the_order_is_noted(run, tmp_path):
    folder = tmp_path / "addresses"
    folder.mkdir()
    for number in (2, 10):
        (folder / f"10.0.0.{number}.txt").write_text(f"[device 0]\nipaddr:192.168.{number}.8\n")
    code, out, _ = run("generate", "--collected", folder, "-o", tmp_path / "t.json")
    assert code == 0
    assert (
        'note: rank ids follow the dictionary order of server_id, in which "10.0.0.10" comes before "10.0.0.2"' in out
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--ssh"], "--ssh needs --hosts FILE"),
        (["--ssh", "--hosts", "h", "--device-ips", "10.0.0.1"], "--device-ips and --ssh are two sources"),
        (["--hosts", "h", "--server-ip", "10.0.0.1"], "--server-ip is for this server alone"),
        (["--hosts", "h", "--hccn-conf", "c"], "for several put such files in a folder for --collected"),
        (["--visible-devices", "a"], "--visible-devices 'a' is no list of physical ids such as 4,5,6,7"),
        (["--device-ips", "10.0"], "--device-ips: '10.0' is neither an IP address nor a range"),
        (["--hosts", "none.txt"], "none.txt: cannot read this host file: No such file or directory"),
        (["--hosts", "none.yaml"], "none.yaml: cannot read"),
        (["--server-ip", "127.0.1.1", "--device-ips", "10.1.0.1"], "127.0.1.1 means this machine on every machine"),
    ],
)
def test_mistakes_in_generate_are_messages_and_nothing_is_written(run, tmp_path, monkeypatch, arguments, expected):
    monkeypatch.chdir(tmp_path)
    code, out, err = run("generate", "-o", "t.json", *arguments)
    assert (code, out) == (2, "")
    assert expected in err
    assert list(tmp_path.iterdir()) == []


def test_an_empty_yaml_host_file_is_told_what_belongs_in_it(run, tmp_path):
    (tmp_path / "hosts.yaml").write_text("")
    code, _, err = run("generate", "--hosts", tmp_path / "hosts.yaml", "-o", tmp_path / "t.json")
    assert code == 2
    assert "a host file holds hosts: at the top" in err


def test_merge_and_diff(run, tmp_path):
    for number in (1, 2):
        source = ("--server-ip", f"10.0.0.{number}", "--device-ips", f"192.168.{number}.8-15")
        run("generate", *source, "-o", tmp_path / f"{number}.json")
    code, out, _ = run("merge", tmp_path / "2.json", tmp_path / "1.json", "-o", tmp_path / "both.json")
    assert (code, out) == (0, f"wrote {tmp_path}/both.json: version 1.0, 2 servers, ranks 0 to 15\n")
    assert run("diff", tmp_path / "both.json", TWO) == (0, "no difference\n", "")
    code, out, _ = run("diff", tmp_path / "1.json", TWO, "--json")
    assert code == 1
    assert {"kind": "server", "what": "server 10.0.0.2", "old": None, "new": "8 devices"} in json.loads(out)[
        "differences"
    ]
    code, _, err = run("diff", tmp_path / "x.json", tmp_path / "y.json")
    assert (code, err.count("cannot read this rank table")) == (2, 2)
    code, _, err = run("merge", tmp_path / "1.json", "-o", tmp_path / "both.json")
    assert code == 2
    assert "exists and differs; give another --output, or --overwrite" in err


def test_check_lists_all_faults_with_file_and_line(run, tmp_path):
    path = tmp_path / "t.json"
    path.write_text(
        Path(TWO).read_text().replace('"rank_id": "3"', '"rank_id": "2"').replace("192.168.2.9", "192.168.2.8")
    )
    code, out, err = run("check", path)
    assert (code, out) == (2, "")
    lines = err.splitlines()
    assert (
        f"error: {path}:11: server_list[0].device[3]: rank_id 2 is that of server_list[0].device[2] too (line 10)"
        in lines
    )
    assert len(lines) == 3
    code, out, err = run("check", path, "--json")
    assert (code, err) == (2, "")
    found = json.loads(out)
    assert found["legal"] is False
    assert [fault["rule"] for fault in found["faults"]].count("duplicate") == 1


def test_check_of_a_good_table(run):
    assert run("check", TWO) == (0, f"{TWO}: no fault; version 1.0, 2 servers, ranks 0 to 15\n", "")
    code, out, _ = run("check", EXAMPLES / "a2_16x8.json")
    assert code == 0
    assert out.startswith("note: ")
    assert json.loads(run("check", TWO, "--json")[1])["legal"] is True


def test_check_against_hccn_finds_a_stale_table(run, tmp_path):
    conf = tmp_path / "10.0.0.2.txt"
    conf.write_text("".join(f"address_{i}=192.168.2.{i + 8}\n" for i in range(8)))
    code, out, _ = run("check", "--against", conf, TWO)
    assert code == 0
    assert out.endswith(f"addresses are those of {conf} on 10.0.0.2\n")
    conf.write_text(conf.read_text().replace("192.168.2.8\n", "192.168.2.80\n"))
    code, _, err = run("check", "--against", "hccn", "--hccn-conf", conf, "--server-ip", "10.0.0.2", TWO)
    assert code == 2
    assert f"device 0 (rank 8) has device_ip 192.168.2.8 in the table, but {conf} says 192.168.2.80" in err
    assert "give --against hccn" in run("check", TWO, "--server-ip", "10.0.0.2")[2]
    assert "--hccn-conf goes with --against hccn" in run("check", TWO, "--against", conf, "--hccn-conf", conf)[2]


def test_show_lays_out_a_strategy_with_tensor_parallel_innermost_and_stages_outermost(run, strategy):
    path = strategy(data_parallel=2, model_parallel=4, pipeline_stage=2, micro_batch_num=2)
    code, out, _ = run("show", TWO, "--parallel", path, "--json")
    assert code == 0
    shown = json.loads(out)
    places = [(row["stage"], row["data"], row["tensor"]) for row in shown["ranks"]]
    assert places == [(stage, data, tensor) for stage in range(2) for data in range(2) for tensor in range(4)]
    assert shown["crossings"] == []


@pytest.mark.parametrize("file", sorted((ROOT / "parallel_configs").glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_strategy_can_be_laid_out(file):
    """A strategy without a run around it: the training: section in some of them is not whole, and need not be."""
    placed = placed_ranks(file)
    assert len(placed.coordinates) == placed.data * placed.tensor * placed.stages


def test_show_warns_where_tensor_parallel_leaves_a_server_and_says_that_no_order_helps(run, strategy):
    code, out, _ = run("show", TWO, "-p", strategy(model_parallel=16), "--order")
    assert code == 0
    assert "warning: tensor-parallel group of ranks 0 to 15 spans 2 servers" in out
    assert "no order keeps tensor parallel inside servers: model_parallel (16) does not divide the 8 devices" in out
    order = json.loads(run("show", TWO, "-p", strategy(data_parallel=2, model_parallel=8), "--order", "--json")[1])[
        "order"
    ]
    assert (order["verdict"], order["moves"]) == ("unneeded", [])


def test_show_proposes_an_order_that_merge_writes(run, tmp_path, strategy):
    document = json.loads(Path(TWO).read_text())
    for number, server in enumerate(document["server_list"]):
        for device in server["device"]:
            device["rank_id"] = str(2 * int(device["device_id"]) + number)
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document))
    degrees = strategy(data_parallel=2, model_parallel=8)
    code, out, _ = run("show", path, "-p", degrees, "--order")
    assert code == 0
    assert "`msllm ranktable merge TABLE --output NEW` writes that order" in out
    assert "  device 0 of 10.0.0.2: rank 1 -> 8" in out
    assert run("show", path, "-p", degrees)[0] == 2  # its ranks are against the rules
    assert run("merge", path, "-o", tmp_path / "new.json")[0] == 0
    assert (tmp_path / "new.json").read_text() == Path(TWO).read_text()


def test_order_refuses_a_table_in_which_a_rank_is_missing(run, tmp_path, strategy):
    path = tmp_path / "t.json"
    path.write_text(Path(TWO).read_text().replace('"rank_id": "3"', '"rank_id": "2"'))
    code, _, err = run("show", path, "-p", strategy(data_parallel=2, model_parallel=8), "--order")
    assert code == 2
    assert "no device has rank_id 3" in err


def test_an_address_found_by_itself_is_said(run, tmp_path, monkeypatch):
    monkeypatch.setattr("rank_tables.sources.local_address", lambda: "10.0.0.7")
    code, out, _ = run("generate", "--device-ips", "10.1.0.1", "-o", tmp_path / "t.json")
    assert code == 0
    assert "note: server_id is 10.0.0.7, this server's address on its default route; --server-ip sets another" in out


def test_many_crossing_groups_are_counted_in_the_terminal_and_listed_in_json(run, strategy, monkeypatch):
    sixteen, degrees = EXAMPLES / "a2_16x8.json", strategy(data_parallel=8, model_parallel=16)
    monkeypatch.setattr(ranktable, "SHOWN_WARNINGS", 3)
    out = run("show", sixteen, "-p", degrees)[1]
    assert out.count("warning: tensor-parallel group") == 3
    assert "warning: and 5 more such groups; --json lists all" in out
    assert len(json.loads(run("show", sixteen, "-p", degrees, "--json")[1])["crossings"]) == 8


def test_pictures_are_written_whole(run, tmp_path, strategy):
    for suffix, start in ((".svg", "<svg "), (".html", "<!DOCTYPE html>")):
        output = tmp_path / f"t{suffix}"
        code, out, _ = run("show", TWO, "-p", strategy(model_parallel=16), "-o", output)
        assert (code, out.splitlines()[0]) == (0, f"wrote {output}")
        assert output.read_text().startswith(start)
    assert "red border" in (tmp_path / "t.html").read_text()
    assert json.loads(run("show", TWO, "-o", tmp_path / "u.svg", "--json")[1])["output"] == str(tmp_path / "u.svg")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--order"], "--order needs --parallel FILE"),
        (["-o", "none/t.svg"], "none/t.svg: the folder none does not exist"),
        (["-o", "t.png"], "--output t.png: the name must end in .svg or .html"),
        (["-p", "none.yaml"], "none.yaml: cannot read"),
    ],
)
def test_mistakes_in_show_are_messages(run, arguments, expected):
    code, out, err = run("show", TWO, *arguments)
    assert (code, out) == (2, "")
    assert expected in err


def test_a_strategy_with_mistakes_or_of_another_size_is_refused(run, strategy):
    code, _, err = run("show", TWO, "-p", strategy(model_paralel=16))
    assert code == 2
    assert "did you mean model_parallel?" in err
    assert "is required" not in err  # a strategy has no model and no data, and needs none here
    code, _, err = run("show", TWO, "-p", strategy(model_parallel=8))
    assert code == 2
    assert "the strategy needs 8 devices" in err


def test_a_check_imports_nothing_heavy():
    code = """
import sys
from msllm.cli import app
try:
    app(["ranktable", "check", sys.argv[1]])
except SystemExit as stopped:
    assert not stopped.code
heavy = {"mindspore", "mindformers", "numpy", "msllm.config"} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code, TWO], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_over_ssh_end_to_end(run, tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "ssh").write_text(
        '#!/bin/sh\nscript=$(cat)\nnumber=${5#node}\nfor i in 0 1 2 3 4 5 6 7; do echo "[device $i]"; '
        'echo "ipaddr:192.168.$number.$((i + 8))"; done\n'
    )
    (tools / "ssh").chmod(0o755)
    assert shutil.which("sh")
    monkeypatch.setenv("PATH", f"{tools}:/usr/bin:/bin")
    output = tmp_path / "t.json"
    code, _, err = run("generate", "--hosts", EXAMPLES / "hosts_2x8.txt", "--ssh", "-o", output)
    assert code == 0, err
    assert output.read_text() == Path(TWO).read_text()
