"""What a rank tells its launcher."""

from __future__ import annotations

from pathlib import Path

import pytest

from msllm.parallel import progress


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_told", {})
    for name in (progress.FILE_VARIABLE, progress.STOP_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def test_values_stay_until_they_are_told_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "rank_0.json"
    monkeypatch.setenv(progress.FILE_VARIABLE, str(file))
    assert progress.read(file) is None
    progress.tell(progress.STEP, step=3, train_steps=10)
    progress.tell(progress.SAVING)
    assert progress.read(file) == {"phase": progress.SAVING, "step": 3, "train_steps": 10}
    assert [path.name for path in tmp_path.iterdir()] == ["rank_0.json"]


def test_without_a_launcher_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    progress.tell(progress.STEP, step=3)
    assert list(tmp_path.iterdir()) == []
    assert not progress.stop_asked()


def test_a_lost_disk_does_not_stop_a_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(progress.FILE_VARIABLE, str(tmp_path / "gone" / "rank_0.json"))
    progress.tell(progress.STEP, step=3)


def test_a_file_cut_short_is_nothing_told(tmp_path: Path):
    (tmp_path / "rank_0.json").write_text('{"phase": "in')
    assert progress.read(tmp_path / "rank_0.json") is None


def test_a_wish_to_stop_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(progress.STOP_VARIABLE, str(tmp_path / "stop"))
    assert not progress.stop_asked()
    (tmp_path / "stop").touch()
    assert progress.stop_asked()
