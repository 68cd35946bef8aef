"""Which versions of MindFormers, MindSpore, CANN and the driver are released for each other."""

from __future__ import annotations

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


def release_of(mindspore: str) -> Release | None:
    """The row of a MindSpore version; None for one that MindFormers was not released for."""
    return next((release for release in RELEASES if release.mindspore == mindspore), None)
