"""What the launcher shows: plain lines, and one live line on a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from msllm.launch import screen
from msllm.launch.screen import Screen
from msllm.launch.view import View


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def seen(text: str) -> View:
    return View(text, None, ())


def test_on_a_terminal_the_state_stays_below_the_lines(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    shown = Screen("[node 0] ")
    shown.status(seen("2 ranks starting"))
    shown.say("hello")
    shown.line("[rank 0] step 1")
    shown.status(seen("2 ranks, step 1"))
    shown.end()
    erased = "\r\x1b[2K"
    assert sys.stderr.getvalue() == (  # type: ignore[attr-defined]
        f"2 ranks starting{erased}[node 0] hello\n2 ranks starting{erased}[rank 0] step 1\n2 ranks starting"
        f"{erased}2 ranks, step 1{erased}"
    )


def test_elsewhere_the_state_is_a_line_from_time_to_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(screen, "STATUS_SECONDS", -1.0)
    shown = Screen()
    for text in ("a", "a", "b"):
        shown.status(seen(text))
    monkeypatch.setattr(screen, "STATUS_SECONDS", 1e9)
    shown.status(seen("c"))
    assert sys.stderr.getvalue() == "a\nb\n"  # type: ignore[attr-defined]
