"""Small matters of language that several messages share."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """`1 file`, `2 files`, `1,234 files`."""
    return f"{count:,} {noun if count == 1 else noun + 's'}"
