"""Versions that belong together."""

from __future__ import annotations

import configparser
from pathlib import Path

from msllm.hardware.versions import RELEASES, release_of


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
