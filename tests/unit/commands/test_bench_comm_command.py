"""Wrong usage of `msllm bench comm`, before MindSpore is imported."""

from __future__ import annotations

import sys

import pytest

from msllm.cli import main


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "there is one rank, which has nobody to talk to; give --workers N, or start under msrun"),
        (["--sizes", "64K,12"], "--sizes 64K,12: '12' is no size from 4096 bytes on, as 64K or 16M"),
        (["--sizes", "big"], "--sizes big: 'big' is no size"),
        (["--workers", "2", "--group", "0,0"], "--group 0,0: expected two or more different ranks, as 0,1,2,3"),
        (["--workers", "2", "--group", "1"], "--group 1: expected two or more different ranks"),
        (["--workers", "2", "--group", "0,2"], "--group 0,2: ranks are 0 to 1"),
        (["--workers", "2", "--chip", "H100"], "--chip H100: no links are known of it; known: 910A, 910B, 910C"),
    ],
)
def test_wrong_usage(arguments: list[str], expected: str, monkeypatch: pytest.MonkeyPatch, capsys):
    for name in ("MS_ROLE", "MS_WORKER_NUM", "RANK_SIZE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["msllm", "bench", "comm", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert f"error: {expected}" in capsys.readouterr().err


def test_ranks_of_msrun_start_no_others(monkeypatch: pytest.MonkeyPatch, capsys):
    monkeypatch.setenv("MS_WORKER_NUM", "2")
    monkeypatch.setattr(sys, "argv", ["msllm", "bench", "comm", "--workers", "2"])
    with pytest.raises(SystemExit):
        main()
    assert "msrun has started 2; leave one of them out" in capsys.readouterr().err
