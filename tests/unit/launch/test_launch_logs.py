"""What a rank's lines tell, and the files that they go to."""

from __future__ import annotations

from pathlib import Path

import pytest

from msllm.launch.logs import RotatingLog, Tail, follows_another, for_console

FRAMEWORK = "[ERROR] DEVICE(17,7f,python):2026-01-02-10:00:00.1 [mindspore/ccsrc/x.cc:480] Init] cannot open device 3"


def tail(*lines: str) -> Tail:
    made = Tail()
    for line in lines:
        made.add(line)
    return made


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["step 1", "error: run.yaml:3: no such folder"], "run.yaml:3: no such folder"),
        (["error: first", "error: second"], "first (and 1 more)"),
        (["Traceback (most recent call last):", '  File "a.py"', "ValueError: bad record"], "ValueError: bad record"),
        (["[rank 3] RuntimeError: out", "plain"], "RuntimeError: out"),
        ([FRAMEWORK, "plain"], FRAMEWORK),
        (["[ERROR] EI0004: rank table", "RuntimeError: Init failed"], "RuntimeError: Init failed [EI0004]"),
        (["KeyboardInterrupt"], None),
        (["all is well"], None),
        ([], None),
    ],
)
def test_the_error_of_a_rank(lines: list[str], expected: str | None):
    assert tail(*lines).error() == expected


def test_the_first_sign_of_an_error_is_kept():
    assert (
        tail("a", "Traceback (most recent call last):", "error: b").first_error == "Traceback (most recent call last):"
    )
    assert tail("a").first_error is None


def test_p17_errors_that_follow_from_another_rank_are_told_from_causes():
    assert follows_another("RuntimeError: Heartbeat of rank 3 timed out")
    assert not follows_another("ValueError: bad record")
    assert not follows_another(None)


def test_the_console_has_tagged_lines_without_the_frameworks():
    assert for_console("step 1", 3, tagged=True) == "[rank 3] step 1"
    assert for_console("[rank 3] step 1", 3, tagged=True) == "[rank 3] step 1"
    assert for_console("step 1", 0, tagged=False) == "step 1"
    assert for_console(FRAMEWORK, 0, tagged=True) is None


def test_a_log_is_rotated_between_lines_and_loses_only_the_oldest(tmp_path: Path):
    log = RotatingLog(tmp_path / "worker_0.log", 100)
    for number in range(60):
        log.write(b"%09d\n" % number)
    log.close()
    files = [log.path, *(log.numbered(number) for number in (1, 2, 3))]
    assert all(file.stat().st_size <= 100 for file in files)
    kept = [int(line) for file in reversed(files) for line in file.read_text().splitlines()]
    assert kept == list(range(20, 60))
    assert not log.numbered(4).exists()


def test_a_line_longer_than_the_limit_is_kept_whole(tmp_path: Path):
    log = RotatingLog(tmp_path / "worker_0.log", 10)
    log.write(b"x" * 50 + b"\n")
    log.close()
    assert log.path.stat().st_size == 51


def test_a_full_disk_does_not_stop_a_rank():
    log = RotatingLog(Path("/dev/full"), 1 << 20)
    log.write(b"line\n")
    log.close()
    log.write(b"after the end\n")
