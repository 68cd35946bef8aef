"""hccl_tools.py and merge_hccl.py: the old command lines and file names, started as files from any folder."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rank_table_samples import HCCN_TOOL, ROOT, make_table

from rank_tables import hccl_tools, merge_hccl
from rank_tables.check import read_table


def run(script: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-S", str(ROOT / "rank_tables" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd)


@pytest.fixture(autouse=True)
def here(fake_tools, tmp_path, monkeypatch) -> Path:
    """A folder on a server of 8 cards."""
    fake_tools(hccn_tool=HCCN_TOOL)
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_the_old_tools_run_as_files_without_anything_installed(here):
    """-S: no site-packages, as on a server where nothing is installed."""
    for number in (1, 2):
        done = run("hccl_tools.py", "--device_num", "[0,8)", "--server_ip", f"10.0.0.{number}", cwd=here)
        assert done.returncode == 0, done.stderr
    first, second = (here / f"hccl_8p_01234567_10.0.0.{number}.json" for number in (1, 2))
    assert f"Completed: hccl file was save in : {second}" in done.stdout
    assert read_table(first) == make_table("10.0.0.1")
    document = json.loads(second.read_text().replace("192.168.1.", "192.168.2."))
    second.write_text(json.dumps(document))
    done = run("merge_hccl.py", str(second), str(first), cwd=here)
    assert done.returncode == 0, done.stderr
    assert read_table(here / "hccl_2s_16p.json") == make_table("10.0.0.1", "10.0.0.2")


def test_device_num_picks_among_the_visible_devices(here):
    assert hccl_tools.main(["--device_num", "[0,4)", "--visible_devices", "4,5,6,7", "--server_ip", "10.0.0.1"]) == 0
    table = read_table(here / "hccl_4p_0123_10.0.0.1.json")
    assert [(d.device_id, d.device_ip, d.rank_id) for d in table.servers[0].devices][0] == (4, "192.168.1.12", 0)


def test_a_second_run_replaces_the_file_as_it_always_did(here):
    assert [hccl_tools.main(["--server_ip", "10.0.0.1"]) for _ in range(2)] == [0, 0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--device_num", "8"], "--device_num '8' is no range of 0 to 16"),
        (["--device_num", "[4,2)"], "is no range"),
        (["--device_num", "[0,17)"], "is no range"),
        (["--device_num", "[0,4)", "--visible_devices", "0,1"], "takes 4 devices, but 2 are visible"),
        (["--visible_devices", "0-7"], "--visible_devices '0-7' is no list"),
        (["--device_num", "[0,16)"], "no address of device 8"),
        (["--server_ip", "127.0.1.1"], "127.0.1.1 means this machine"),
    ],
)
def test_mistakes_are_messages_with_exit_code_2(arguments, expected, here, capsys):
    assert hccl_tools.main(["--server_ip", "10.0.0.1", *arguments]) == 2
    assert expected in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_merge_writes_where_it_is_told_and_names_faults(here, capsys):
    (here / "a.json").write_text(make_table("10.0.0.1").to_text())
    assert merge_hccl.main(["a.json", "--save_path", "b.json"]) == 0
    assert read_table(here / "b.json") == make_table("10.0.0.1")
    assert merge_hccl.main(["a.json", "none.json"]) == 2
    assert "none.json: cannot read this rank table" in capsys.readouterr().err
