"""`msllm doctor`: what reaches the terminal, exit codes, JSON, bundles."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from msllm.cli import main
from msllm.commands import doctor
from msllm.doctor.examine import LAYERS

MASK = "ASCEND_RT_VISIBLE_DEVICES"


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Call `msllm doctor` in this process, which has no NPU: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    for name in (MASK, "RANK_TABLE_FILE", "MS_WORKER_NUM"):
        monkeypatch.delenv(name, raising=False)

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["msllm", "doctor", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return call


def test_on_a_laptop_it_says_what_can_be_done_there(run):
    code, out, err = run("--quick")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0].split() == ["1", "devices", "and", "driver", "not", "here"]
    assert lines[1].split() == ["2", "firmware", "and", "CANN", "not", "here"]
    assert any(line.startswith("6 HCCL and rank table") and line.endswith("not here") for line in lines)
    assert "mindspore 2.9.0" in out
    assert "There is no NPU here, and none is needed for this:" in lines
    for command in ("bash scripts/quickstart.sh", "msllm check", "msllm rehearse", "msllm ranktable"):
        assert command in doctor.LAPTOP


def test_what_is_wrong_is_said_with_why_and_mend_and_ends_with_1(run, tmp_path):
    table = tmp_path / "table.json"
    table.write_text('{"version": "1.0",}')
    code, out, err = run("--quick", "--rank-table", table)
    assert (code, err) == (1, "")
    assert "    error: " in out and f"{table}:1" in out
    assert "      why:    HCCL refuses such a table" in out
    assert f"      mend:   msllm ranktable check {table}" in out
    assert "1 error; mend this first:" in out
    assert "7 this machine            not looked at: layer 6 (HCCL and rank table) has to be mended first" in out


def test_json_is_one_document(run):
    code, out, err = run("--quick", "--json", "--folder", "/proc")
    document = json.loads(out)
    assert (code, err) == (1, "")
    assert not document["healthy"] and not document["npu"]
    assert [layer["name"] for layer in document["layers"]] == [layer.name for layer in LAYERS]
    assert document["findings"][0]["code"] == "machine.disk"
    assert set(document["findings"][0]) == {"severity", "code", "seen", "why", "mend"}


def test_bundles_are_written_and_compared(run, tmp_path):
    one, two = tmp_path / "node1.json", tmp_path / "node2.json"
    code, out, _ = run("--quick", "--bundle", one, "--mask-key", "word")
    assert code == 0
    assert f"wrote {one}; addresses and names are masked" in out
    assert run("compare", one, one)[0] == 2, "one node"
    two.write_text(one.read_text())
    assert run("compare", one, two)[:2] == (0, "2 nodes agree in all that is compared\n")
    document = json.loads(two.read_text())
    document["facts"]["cann"], document["facts"]["packages"]["mindspore"] = "9.0.0", "2.10.0"
    two.write_text(json.dumps(document))
    code, out, _ = run("compare", one, two, "--json")
    found = json.loads(out)
    assert (code, found["equal"], found["nodes"]) == (1, False, ["node1", "node2"])
    assert [finding["seen"] for finding in found["findings"]] == ["mindspore is 2.9.0 on node1, 2.10.0 on node2"]


def test_nodes_whose_files_have_one_name_are_told_apart(run, tmp_path):
    paths = []
    for folder, cann in (("a", "9.0.0"), ("b", "8.5.0")):
        paths.append(tmp_path / folder / "doctor.json")
        paths[-1].parent.mkdir()
        paths[-1].write_text(json.dumps({"msllm_doctor_bundle": 1, "facts": {"cann": cann}, "environment": {}}))
    code, out, _ = run("compare", *paths)
    assert code == 1
    assert f"CANN is 9.0.0 on {paths[0]}, 8.5.0 on {paths[1]}" in out


def test_wrong_usage_is_said_before_anything_is_looked_at(run, tmp_path, monkeypatch):
    monkeypatch.setattr("msllm.doctor.examine.LAYERS", ())
    (tmp_path / "there.json").write_text("mine")
    for arguments, message in (
        (["--mask-key", "x"], "--mask-key goes with --bundle FILE"),
        (["--rank-table", "nothing.json"], "nothing.json: --rank-table: there is no such file"),
        (["--folder", "there.json"], "there.json: --folder: there is no such folder"),
        (["--overwrite"], "--overwrite goes with --bundle FILE"),
        (["--bundle", "there.json"], "is there already"),
        (["--bundle", "nowhere/a.json"], "there is no folder nowhere"),
        (["--bundle", "a.json", "--mask-key", ""], "--mask-key is empty"),
        (["compare", "there.json", "nothing.json"], "is no bundle"),
        (["compare", "there.json", "nothing.json"], "cannot read this bundle"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, ""), arguments
        assert message in err
    assert (tmp_path / "there.json").read_text() == "mine"


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_what_no_terminal_can_show_is_escaped(tmp_path, encoding):
    folder = tmp_path / "设备"
    folder.mkdir()
    environment = {**os.environ, MASK: "0\udcff\x1b[2J", "PYTHONIOENCODING": encoding}
    command = [sys.executable, "-c", "from msllm.cli import main; main()", "doctor", "--quick", "--folder", str(folder)]
    done = subprocess.run(command, capture_output=True, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"\x1b[2J" not in done.stdout
    assert b"ASCEND_RT_VISIBLE_DEVICES=0\\udcff\\x1b[2J is set" in done.stdout
    assert (folder.name if encoding == "utf-8" else "\\u8bbe\\u5907").encode() in done.stdout


def test_in_a_folder_that_was_removed(run, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run("--quick") == (2, "", "error: the current folder has been removed; cd to another one\n")


def test_examples_of_the_help(run):
    out = run("--help")[1]
    assert "msllm doctor --bundle node1.json" in " ".join(out.split())
    assert "Exit code 0: healthy" in out
