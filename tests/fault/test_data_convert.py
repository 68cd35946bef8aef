"""Conversions that are killed, stopped, or run out of disk: the same command goes on and gives the same bytes."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from data_tools.verify import verify

pytestmark = pytest.mark.fault

SHARDS = 12


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory, tokenizer_file: Path, documents: list[str]) -> list[str]:
    """A conversion of a second or two, without its output."""
    corpus = tmp_path_factory.mktemp("corpus") / "a.jsonl"
    corpus.write_text("".join(json.dumps({"text": text * 10}) + "\n" for text in documents * 7))
    code = "from msllm.cli import main; main()"
    arguments = ["-i", corpus, "--tokenizer", tokenizer_file, "--seq-length", 64, "--shards", SHARDS, "--workers", 2]
    return [sys.executable, "-c", code, "data", "convert", *map(str, arguments), "--output"]


@pytest.fixture(scope="module")
def clean(command: list[str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What an uninterrupted conversion gives."""
    output = tmp_path_factory.mktemp("clean") / "set"
    subprocess.run([*command, output], check=True, capture_output=True)
    return content(output)


def content(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def start(command: list[str], output: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([*command, str(output)], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def run(command: list[str], output: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*command, str(output)], check=False, capture_output=True, text=True)


def finished_shards(output: Path) -> int:
    return len(list(Path(f"{output}.partial", "results").glob("*.json")))


def wait_for_shards(process: subprocess.Popen[str], output: Path, count: int) -> None:
    while process.poll() is None and finished_shards(output) < count:
        time.sleep(0.005)


def workers_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Processes that the fork server made, once they work."""
    children = psutil.Process(process.pid).children(recursive=True)
    return [child for child in children if child.ppid() != process.pid]


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=10)
    assert not alive


def test_driver_killed_at_random_moments(command: list[str], clean: dict[str, str], tmp_path: Path) -> None:
    draw = random.Random(os.getpid())
    output = tmp_path / "set"
    kills = 0
    while kills < 6 and not output.exists():
        process = start(command, output)
        wait_for_shards(process, output, finished_shards(output) + draw.choice([0, 1, 2]))
        time.sleep(draw.uniform(0, 0.1))
        children = [] if process.poll() is not None else psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
        assert_gone(children)
        kills += 1
    assert kills >= 3
    end = run(command, output)
    assert end.returncode == 0, end.stderr
    assert content(output) == clean and verify(output, deep=True).damages == ()
    assert not Path(f"{output}.partial").exists()


def test_stopped_again_and_again_in_different_ways(command: list[str], clean: dict[str, str], tmp_path: Path) -> None:
    output = tmp_path / "set"

    process = start(command, output)
    wait_for_shards(process, output, 1)
    workers = workers_of(process)
    random.choice(workers).kill()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "was killed by SIGKILL at shard-" in errors and "the same command goes on" in errors
    assert_gone(workers)

    process = start(command, output)
    wait_for_shards(process, output, finished_shards(output) + 1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    _, interrupted = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"of {SHARDS} shards finished; the same command goes on" in interrupted
    assert_gone(children)

    process = start(command, output)
    wait_for_shards(process, output, finished_shards(output) + 1)
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGSTOP)  # so that it does not end while a second one waits for it
    second = run(command, output)
    assert second.returncode == 2 and f"process {process.pid} on" in second.stderr
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM
    assert_gone(children)

    end = run([*command[:-1], "--json", "--output"], output)
    assert json.loads(end.stdout)["resumed_shards"] >= 3
    assert content(output) == clean
    assert "Traceback" not in errors + interrupted + second.stderr + end.stderr


def test_parts_and_merge_killed_at_random_moments(command: list[str], clean: dict[str, str], tmp_path: Path) -> None:
    draw = random.Random(os.getpid())
    output = tmp_path / "set"
    for number in ("1", "2"):
        part = [*command[:-1], "--num-parts", "2", "--part", number, "--output"]
        folder = Path(f"{output}.part-{number}-of-2")
        process = start(part, output)
        wait_for_shards(process, folder, draw.choice([1, 2, 3]))
        children = [] if process.poll() is not None else psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
        assert_gone(children)
        end = run(part, output)
        assert end.returncode == 0 and f"part {number} of 2" in end.stdout, end.stderr
    merge = [*command[: command.index("data")], "data", "merge", "--output"]
    for _ in range(2):
        process = start(merge, output)
        while process.poll() is None and not Path(f"{output}.partial").exists():
            time.sleep(0.001)
        time.sleep(draw.uniform(0, 0.02))
        process.kill()
        process.communicate()
    end = run(merge, output)
    assert end.returncode == 0, end.stderr
    assert content(output) == clean and not Path(f"{output}.partial").exists()


@pytest.fixture
def small_disk(tmp_path: Path, clean: dict[str, str]) -> Iterator[Path]:
    """A file system too small for the output; MindRecord stops when 10 MiB are left."""
    folder = tmp_path / "disk"
    folder.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)]
    made = subprocess.run(options, check=False, capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"mounting a tmpfs needs root: {made.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_full_disk_is_a_clear_error_and_the_run_goes_on_when_there_is_space(
    command: list[str], clean: dict[str, str], small_disk: Path
) -> None:
    output = small_disk / "set"
    full = run(command, output)
    assert full.returncode == 1, full.stderr
    assert "disk full" in full.stderr and str(small_disk) in full.stderr and "MiB free" in full.stderr
    assert "Traceback" not in full.stderr and not output.exists()
    subprocess.run(["mount", "-o", "remount,size=200m", small_disk], check=True)
    end = run(command, output)
    assert end.returncode == 0, end.stderr
    assert content(output) == clean


def test_write_that_the_system_refuses_is_noticed(command: list[str], tmp_path: Path) -> None:
    """As with a quota: MindRecord goes on after the first failed write, and may crash later."""
    output = tmp_path / "set"
    limited = run(["bash", "-c", 'ulimit -f 100; exec "$@"', "bash", *command], output)
    assert limited.returncode == 1, limited.stderr
    assert "shard-000" in limited.stderr and ("cannot write" in limited.stderr or "quotas" in limited.stderr)
    assert "Traceback" not in limited.stderr and not output.exists()
