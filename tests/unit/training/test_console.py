from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from msllm.parallel.world import World
from msllm.training.console import RunConsole
from msllm.training.metrics import StepMetrics

HIDE_CURSOR, SHOW_CURSOR = b"\x1b[?25l", b"\x1b[?25h"


def record(step: int, **fields) -> StepMetrics:
    values = {"loss": 4.0, "lr": 1e-3, "grad_norm": 0.5, "loss_scale": 1.0, "overflow": False}
    times = {"step_seconds": 0.5, "data_seconds": 0.05, "compute_seconds": 0.3, "other_seconds": 0.15}
    counts = {"tokens_per_second": 256.0, "samples_seen": 8, "memory_bytes": 1}
    return StepMetrics(step=step, **{**values, **times, **counts, **fields})


def test_without_a_terminal_there_are_plain_lines_on_stderr_and_in_the_log(tmp_path: Path, capsys):
    console = RunConsole(World(), tmp_path / "rank_0.log", train_steps=3)
    console.start()
    console.info("begin")
    console.step(record(1), show=True)
    console.step(record(2), show=False)
    console.step(record(3, overflow=True, loss_scale=512.0), show=True)
    console.warning("odd")
    console.close()
    captured = capsys.readouterr()
    lines = captured.err.splitlines()
    assert captured.out == ""
    assert lines[0] == "begin" and lines[3] == "warning: odd" and len(lines) == 4
    assert lines[1].startswith("step 1/3 loss 4.0000 lr 1.00e-03 grad_norm 0.500 tokens/s 256 data 10.0% eta")
    assert "step 3/3" in lines[2] and "scale 512 OVERFLOW, no update" in lines[2]
    log = (tmp_path / "rank_0.log").read_text().splitlines()
    assert [text.split(" ", 3)[3] for text in log] == lines


def test_lines_of_several_ranks_are_tagged(tmp_path: Path, capsys):
    console = RunConsole(World(rank=1, size=2, data_rank=1), tmp_path / "rank_1.log", train_steps=3)
    console.info("begin")
    console.close()
    assert capsys.readouterr().err == "[rank 1] begin\n"


def test_a_closed_console_writes_no_more_and_a_new_one_begins_afresh(tmp_path: Path, capsys):
    for name in ("a", "b"):
        console = RunConsole(World(), tmp_path / name, train_steps=3)
        console.info(name)
        console.close()
    assert capsys.readouterr().err == "a\nb\n"
    assert len((tmp_path / "a").read_text().splitlines()) == 1


def test_a_log_on_a_full_disk_leaves_its_lines_out():
    if not os.path.exists("/dev/full"):
        pytest.skip("/dev/full is not there")
    console = RunConsole(World(), Path("/dev/full"), train_steps=3)
    console.info("lost")
    console.close()


def on_a_terminal(folder: Path, body: str) -> bytes:
    """What a script with a RunConsole writes to its terminal."""
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from test_console import RunConsole, World, record\n"
        f"console = RunConsole(World(), Path(sys.argv[1]), 3)\n{body}"
    )
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", code, str(folder / "log"), str(Path(__file__).parent)]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160"}
    process = subprocess.Popen(command, stderr=theirs, stdout=theirs, env=environment)
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 4096):
            written += part
    except OSError:
        pass  # how Linux tells that the other side is closed
    assert process.wait() == 0, written
    os.close(ours)
    return written


def test_on_a_terminal_there_is_one_live_line_and_the_cursor_comes_back(tmp_path: Path):
    body = "console.start(); console.step(record(1), show=True); console.info('[a] b'); console.close()"
    written = on_a_terminal(tmp_path, body)
    assert written.count(HIDE_CURSOR) == written.count(SHOW_CURSOR) == 1
    assert written.rindex(SHOW_CURSOR) > written.rindex(HIDE_CURSOR)
    assert b"step 1/3 loss 4.0000" in written and b"[a] b" in written
    assert "step 1/3" in (tmp_path / "log").read_text()


def test_a_run_that_is_refused_before_it_begins_leaves_the_terminal_alone(tmp_path: Path):
    written = on_a_terminal(tmp_path, "console.warning('no')")
    assert HIDE_CURSOR not in written and b"warning: no" in written
