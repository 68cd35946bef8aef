"""Versions that belong together."""

from __future__ import annotations

import configparser
from pathlib import Path

from msllm.hardware.versions import OURS, PYTHON, RELEASES, order, release_of, release_of_cann


def test_this_project_pins_a_released_pair():
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[3] / "setup.cfg")
    lines = setup["options"]["install_requires"].splitlines()
    pins = dict(line.split("==") for line in lines if line.startswith(("mindspore==", "mindformers==")))
    release = release_of(pins["mindspore"])
    assert release is not None
    assert release.mindformers == pins["mindformers"]


def test_each_version_has_one_row():
    assert len({release.mindspore for release in RELEASES}) == len({r.mindformers for r in RELEASES}) == len(RELEASES)


def test_an_unknown_version_has_no_row():
    assert release_of("1.0.0") is None


def test_versions_sort_as_their_makers_number_them():
    ascending = [
        "9.0.0-beta.2",
        "9.0.0",
        "24.1.rc2",
        "24.1.rc3",
        "24.1.rc3.7",
        "24.1.0",
        "24.1.1",
        "25.0.RC1",
        "25.0.rc2",
        "25.0.0",
    ]
    assert sorted(ascending, key=order) == ascending
    assert order("2.11.0") > order("2.9.0")
    assert order("26.0.rc1") == order("26.0.RC1")


def test_rows_ascend_in_every_column():
    for older, newer in zip(RELEASES, RELEASES[1:]):
        for column in ("mindformers", "mindspore", "cann", "driver"):
            assert order(getattr(older, column)) < order(getattr(newer, column)), (older, column)


def test_a_cann_is_found_by_its_first_two_numbers():
    assert release_of_cann("9.0.1") == OURS
    assert release_of_cann("8.2.RC1.alpha002") == release_of("2.7.0")
    assert release_of_cann("7.0.0") is None


def test_pythons_are_those_of_the_package():
    setup = configparser.ConfigParser()
    setup.read(Path(__file__).parents[3] / "setup.cfg")
    first, last = PYTHON
    assert setup["options"]["python_requires"] == f">={first[0]}.{first[1]}, <{last[0]}.{last[1] + 1}"
