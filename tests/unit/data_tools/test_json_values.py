from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_tools.json_values import BrokenValue, json_values

VALUES = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def chunks(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def read(text: str, size: int = 7) -> list[tuple[Any, int]]:
    return list(json_values(chunks(text, size)))


@settings(max_examples=60)
@given(
    values=st.lists(VALUES, max_size=8),
    size=st.integers(1, 40),
    indent=st.sampled_from([None, 0, 2]),
    ascii=st.booleans(),
)
def test_array_of_anything_in_chunks_of_any_size(values: list[Any], size: int, indent: int | None, ascii: bool) -> None:
    text = json.dumps(values, indent=indent, ensure_ascii=ascii)
    assert [value for value, _ in read(text, size)] == values


@settings(max_examples=60)
@given(
    values=st.lists(st.dictionaries(st.text(max_size=5), VALUES, max_size=3), min_size=1, max_size=8),
    size=st.integers(1, 40),
    indent=st.sampled_from([None, 2]),
)
def test_objects_that_follow_one_another(values: list[Any], size: int, indent: int | None) -> None:
    text = "\n".join(json.dumps(value, indent=indent) for value in values)
    assert [value for value, _ in read(text, size)] == values


@pytest.mark.parametrize("number", [0.5, 1e-7, 1e22, -12, True])
def test_number_that_is_cut_anywhere(number: float) -> None:
    for size in range(1, 8):
        assert read(json.dumps([number, {}]), size) == [(number, 1), ({}, 1)]


def test_lines_are_counted() -> None:
    assert read('[{"a":\n1},\n\n{"b":2}]') == [({"a": 1}, 1), ({"b": 2}, 4)]
    assert read('\n{"a":1}\n{"b":2}') == [({"a": 1}, 2), ({"b": 2}, 3)]


@pytest.mark.parametrize("text", ["", "  \n ", "[]", " [ ] \n"])
def test_nothing(text: str) -> None:
    assert read(text) == []


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ('[{"a":1}, {"b":', 1),
        ('[{"a":1}', 1),
        ('[{"a":1},', 1),
        ("[", 0),
        ('[{"a":1} {"b":2}]', 1),
        ('[{"a":1}] x', 1),
        ('{"a":', 0),
        ('{"a":1} tru', 1),
        ('["unterminated', 0),
        ("{}}", 1),
    ],
)
def test_broken_or_cut(text: str, good: int) -> None:
    for size in (1, 3, 100):
        values = [value for value, _ in read(text, size)]
        assert sum(not isinstance(value, BrokenValue) for value in values) == good
        assert isinstance(values[-1], BrokenValue)


def test_next_object_at_the_start_of_a_line_is_found_after_a_broken_one() -> None:
    for size in (1, 4, 100):
        values = [value for value, _ in read('{"a":1}\n{"b":oops}\n{"c":3}\n{"d" 4}\n{"e":5}', size)]
        assert [value for value in values if not isinstance(value, BrokenValue)] == [{"a": 1}, {"c": 3}, {"e": 5}]
        assert sum(isinstance(value, BrokenValue) for value in values) == 2


def test_too_deep() -> None:
    ((value, line),) = read("[" * 100_000, 50_000)
    assert isinstance(value, BrokenValue) and line == 1


def test_one_long_value_in_small_chunks_is_not_tried_at_every_chunk() -> None:
    text = json.dumps([{"text": "x" * 1_000_000}])
    assert len(read(text, 1000)) == 1


@given(text=st.text(alphabet='[]{},:"\\ \n1tenu.', max_size=60), size=st.integers(1, 20))
def test_no_text_breaks_the_reader(text: str, size: int) -> None:
    read(text, size)
