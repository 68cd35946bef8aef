"""The table of `npu-smi info`, as drivers print it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recorded import RECORDINGS

from msllm.doctor.npu_smi import NpuProcess, NpuRow, chip_of, parse


def table_of(name: str) -> str:
    """What npu-smi info prints in a recording."""
    text = (RECORDINGS / f"{name}.txt").read_text()
    return re.split(r"^\$ ", text.split("$ npu-smi info\n")[1], flags=re.MULTILINE)[0]


def test_the_wide_table_of_8_cards_910b3():
    table = parse(table_of("healthy_910b3"))
    assert (table.tool, table.driver) == ("26.0.rc1", "26.0.rc1")
    assert [row.device for row in table.rows] == list(range(8))
    assert table.rows[2] == NpuRow(2, 0, 2, "910B3", "OK", "0000:81:00.0", 3397, 65536)
    assert table.processes == []
    assert chip_of(table.rows) == "910B"


def test_the_narrow_table_of_an_older_driver():
    table = parse(table_of("old_driver_910b3"))
    assert table.driver == "24.1.0"
    assert [row.device for row in table.rows] == list(range(8))


def test_an_a3_has_two_dies_a_card_and_physical_numbers():
    table = parse(table_of("healthy_a3"))
    assert [(row.npu, row.chip, row.device) for row in table.rows] == [(i // 2, i % 2, i) for i in range(16)]
    assert chip_of(table.rows) == "910C"


def test_processes_with_and_without_a_name():
    lines = [
        "| NPU     Chip              | Process id    | Process name             | Process memory(MB)      |",
        "| No running processes found in NPU 0                                                            |",
        "| 2       0                 | 1333928       |                          | 37709                   |",
        "| 3       1                 | 19334         | VLLMWorker_TP            | 58472                   |",
    ]
    assert parse("\n".join(lines)).processes == [
        NpuProcess(2, 0, 1333928, "", 37709),
        NpuProcess(3, 1, 19334, "VLLMWorker_TP", 58472),
    ]


@pytest.mark.parametrize(
    ("name", "second_die", "chip"),
    [("910B3", False, "910B"), ("910B4", False, "910B"), ("Ascend910", True, "910C"), ("910A", False, "910A"),
     ("910PremiumA", False, "910A"), ("310P3", False, None)],
)  # fmt: skip
def test_chips_by_their_names(name, second_die, chip):
    rows = [NpuRow(0, number, number, name, "OK", "0000:C1:00.0", 1, 2) for number in range(1 + second_die)]
    assert chip_of(rows) == chip


def test_no_rows_and_mixed_rows_are_no_chip():
    assert chip_of([]) is None
    assert chip_of([NpuRow(0, 0, i, name, "OK", "", None, None) for i, name in enumerate(("910B3", "310P3"))]) is None


@given(st.text(alphabet="|+-= 0123456789:/.ABCnpu\nOK", max_size=400))
def test_any_text_is_read_without_an_error(text):
    parse(text)


@given(st.data())
def test_a_table_that_was_cut_or_spoilt_is_read_without_an_error(data):
    text = table_of(data.draw(st.sampled_from(["healthy_910b3", "healthy_a3", "old_driver_910b3"])))
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    kept = text[:start] + data.draw(st.text(max_size=5)) + text[end:]
    assert len(parse(kept).rows) <= 16
