"""Facts about chips."""

from __future__ import annotations

import pytest

from msllm.hardware.chips import CHIPS, chip


def test_bfloat16_is_known_for_every_chip():
    assert {name: known.bfloat16 for name, known in CHIPS.items()} == {
        "910A": False,
        "910B": True,
        "910C": True,
        "CPU": False,
    }


@pytest.mark.parametrize("name", CHIPS)
def test_every_fact_has_a_source_and_a_backend(name):
    assert chip(name).source
    assert chip(name).device_target in ("Ascend", "CPU")


def test_an_unknown_chip_is_a_key_error():
    with pytest.raises(KeyError):
        chip("910Z")
