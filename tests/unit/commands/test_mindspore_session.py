"""Ctrl-C while MindSpore works, and where its compiler writes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import tiny_runs

from msllm.commands.mindspore_session import mindspore_session


def test_what_is_said_between_ctrl_c_and_the_end_is_lost_and_nothing_else(capfd):
    with pytest.raises(KeyboardInterrupt), mindspore_session():
        os.write(2, b"before ")
        try:
            os.kill(os.getpid(), signal.SIGINT)
        finally:
            os.write(2, b"pages of a compiler ")
    os.write(2, b"after")
    assert capfd.readouterr().err == "before after"


@pytest.mark.parametrize("made_of_it", [RuntimeError, None])
def test_ctrl_c_is_ctrl_c_whatever_the_compiler_makes_of_it(made_of_it):
    with pytest.raises(KeyboardInterrupt), mindspore_session():
        try:
            os.kill(os.getpid(), signal.SIGINT)
        except KeyboardInterrupt:
            if made_of_it:
                raise made_of_it("compile failed") from None


def test_a_loop_can_ask_for_ctrl_c_that_was_lost():
    with pytest.raises(KeyboardInterrupt), mindspore_session() as raise_if_interrupted:
        raise_if_interrupted()
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        raise_if_interrupted()
        raise AssertionError("went on")


def test_other_errors_pass_and_all_is_as_before(monkeypatch):
    monkeypatch.delenv("MS_OM_PATH", raising=False)
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(ValueError, match="mine"), mindspore_session():
        raise ValueError("mine")
    assert signal.getsignal(signal.SIGINT) is handler
    assert "MS_OM_PATH" not in os.environ


def test_reports_of_the_compiler_go_where_the_user_says_or_out_of_the_way(monkeypatch, tmp_path):
    monkeypatch.delenv("MS_OM_PATH", raising=False)
    with mindspore_session(tmp_path):
        assert os.environ["MS_OM_PATH"] == str(tmp_path)
    with mindspore_session():
        assert os.environ["MS_OM_PATH"] == tempfile.gettempdir()
    monkeypatch.setenv("MS_OM_PATH", "mine")
    with mindspore_session(tmp_path):
        assert os.environ["MS_OM_PATH"] == "mine"
    assert os.environ["MS_OM_PATH"] == "mine"


def start(*arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(Path(sys.executable).with_name("msllm")), *arguments],
        cwd=cwd,
        env=tiny_runs.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.fault
@pytest.mark.parametrize("command", ["train", "bench step", "bench data"])
def test_ctrl_c_during_the_import_of_mindspore_is_one_line(tmp_path, command):
    config = tiny_runs.write_config(tmp_path / "a.yaml", tiny_runs.write_data(tmp_path / "data"))
    output = ["-o", "run"] if command == "train" else []
    process = start(*command.split(), "-c", str(config), *output, cwd=tmp_path)
    wait_until(lambda: "_c_expression" in Path(f"/proc/{process.pid}/maps").read_text(), process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "error: stopped by Ctrl-C\n")


@pytest.mark.fault
def test_ctrl_c_during_compilation_is_one_line_and_no_file_in_the_users_folder(tmp_path):
    config = tiny_runs.write_config(tmp_path / "a.yaml", tiny_runs.write_data(tmp_path / "data"))
    (tmp_path / "here").mkdir()
    arguments = ["train", "-c", str(config), "-o", "run", "-s", "model.num_hidden_layers=12"]
    process = start(*arguments, cwd=tmp_path / "here")
    log = tmp_path / "here/run/logs/rank_0.log"
    wait_until(lambda: log.exists() and "compiling" in log.read_text(), process)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-1] == "error: stopped by Ctrl-C"
    assert len(err.splitlines()) == 3, err  # what is trained, that it compiles, that it was stopped
    assert [path.name for path in (tmp_path / "here").iterdir()] == ["run"]
    assert log.read_text().splitlines()[-1].endswith("ERROR stopped by Ctrl-C after step 0; there is no checkpoint yet")


LOSES_CTRL_C = """
import contextlib, signal
from mindspore.train import Callback

class Loses(Callback):
    def on_train_step_begin(self, run_context):
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
"""


@pytest.mark.fault
def test_ctrl_c_that_mindspore_loses_ends_the_run_at_the_next_step(tmp_path):
    config = tiny_runs.write_config(tmp_path / "a.yaml", tiny_runs.write_data(tmp_path / "data"))
    (tmp_path / "loses.py").write_text(LOSES_CTRL_C)
    process = start("train", "-c", str(config), "-o", "run", "--callback", "loses:Loses", cwd=tmp_path)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.splitlines()[-1]) == (130, "", "error: stopped by Ctrl-C")
    log = (tmp_path / "run/logs/rank_0.log").read_text()
    assert log.splitlines()[-1].endswith("ERROR stopped by Ctrl-C after step 0; there is no checkpoint yet")
