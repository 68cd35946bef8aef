from __future__ import annotations

from data_tools.words import counted


def test_one_is_singular_and_the_rest_plural() -> None:
    assert [counted(n, "file") for n in (0, 1, 2, 1234)] == ["0 files", "1 file", "2 files", "1,234 files"]
