"""Which versions of MindFormers, MindSpore, CANN, the driver and Python are released for each other."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Release:
    """One row: versions that were tested together by their maker."""

    mindformers: str
    mindspore: str
    cann: str
    driver: str


# VERSION_MAP.json in the wheel of mindformers 1.9.0. Graph mode across devices ends upstream after mindspore 2.11.
RELEASES = (
    Release("1.2.0", "2.3.0", "8.0.RC2", "24.1.rc2"),
    Release("1.3.0", "2.4.0", "8.0.RC3", "24.1.rc3"),
    Release("1.3.2", "2.4.10", "8.0.0", "24.1.0"),
    Release("1.5.0", "2.6.0", "8.1.RC1", "25.0.RC1"),
    Release("1.6.0", "2.7.0", "8.2.RC1", "25.2.0"),
    Release("1.7.0", "2.7.1", "8.3.RC1", "25.3.RC1"),
    Release("1.8.0", "2.7.2", "8.5.0", "25.5.0"),
    Release("1.9.0", "2.9.0", "9.0.0", "26.0.RC1"),
)
OURS = RELEASES[-1]
"""The row that this project pins and is tested with."""
LAST_GRAPH_MODE = "2.11"
"""The last MindSpore whose Graph mode trains on several devices (notes of MindSpore 2.11.0)."""
ACCEPTED_CANN = {"2.9.0": ("8.2", "8.3", "8.5", "9.0")}
"""MindSpore -> the CANN versions that it starts on without a warning (AscendEnvChecker in its wheel)."""
PYTHON = ((3, 10), (3, 12))
"""First and last Python: MindSpore 2.9.0 has no wheel for 3.13, MindFormers 1.9.0 none for 3.9."""
NUMPY_BELOW = "2"
"""MindSpore 2.9.0 and MindFormers 1.9.0 both ask for numpy 1."""


def release_of(mindspore: str) -> Release | None:
    """The row of a MindSpore version; None for one that MindFormers was not released for."""
    return next((release for release in RELEASES if release.mindspore == mindspore), None)


def release_of_cann(cann: str) -> Release | None:
    """The row of a CANN version, by its first two numbers (9.0 for 9.0.1); None for one that no row has."""
    return next((release for release in RELEASES if series(release.cann) == series(cann)), None)


def series(version: str) -> tuple[str, ...]:
    """First two parts, which MindSpore compares CANN by: ("8", "2") for 8.2.RC1."""
    return tuple(version.lower().split(".")[:2])


_END, _NUMBER = 1, 2


def order(version: str) -> tuple[tuple[int, int], ...]:
    """A key that sorts versions as their makers do: 24.1.rc3 < 24.1.rc3.7 < 24.1.0 < 25.0.RC1, 9.0.0-beta.2 < 9.0.0."""
    parts: list[tuple[int, int]] = []
    for number, word in re.findall(r"(\d+)|([A-Za-z]+)", version):
        if word:
            parts.append((0, 1 if word.lower() == "rc" else 0))
        else:
            parts.append((_NUMBER, int(number)))
    return (*parts, (_END, 0))
