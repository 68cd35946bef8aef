"""How far a long job is: plain lines now and then where there is no terminal."""

from __future__ import annotations

import pytest

from data_tools import progress
from data_tools.progress import Progress


class Clock:
    """A clock that tests move."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress.time, "monotonic", clock)
    return clock


def test_a_line_every_ten_seconds_with_rate_and_time_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("convert", 100_000_000) as shown:
        shown.advance(10_000_000, tokens=2_000_000)
        assert capsys.readouterr().err == ""
        clock.now += 10
        shown.advance(10_000_000, tokens=2_000_000)
        shown.advance(1)
    assert capsys.readouterr().err == "convert: 20.0%, 2.0 MB/s, 0.40 Mtok/s, 0:00:40 left\n"


def test_what_an_earlier_run_did_counts_for_the_share_and_not_for_the_rate(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = Progress("convert", 1000, done=500, unit="rows")
    clock.now += 10
    shown.reach(600)
    assert capsys.readouterr().err == "convert: 60.0%, 10 rows/s, 0:00:40 left\n"


def test_nothing_done_yet_has_no_time_left(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress("read", 0)
    clock.now += 10
    shown.advance(0)
    assert capsys.readouterr().err == "read: 0.0%, 0.0 MB/s, ? left\n"


def test_quiet_is_quiet(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress("convert", 10, quiet=True)
    clock.now += 100
    shown.advance(5)
    shown.say("stopped")
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_a_bar_and_lines_above_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress.sys.stderr, "isatty", lambda: True, raising=False)
    with Progress("learn", 10, unit="tokens") as shown:
        shown.reach(10)
        shown.say("a line with [brackets]")
    shown.close()
    said = capsys.readouterr()
    assert said.out == "" and "a line with [brackets]" in said.err and "10/10" in said.err
