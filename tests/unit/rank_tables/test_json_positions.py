"""The JSON reader that knows places: equal to `json` in what it reads, better in what it says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rank_tables.json_positions import JsonError, read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
# fmt: off
TOKENS = ["{", "}", "[", "]", ",", ":", '"a"', '"b', "1", "-", "0", "01", "1.5", "1e3", "2.", "true", "nul", "null",
          " ", "\n", "\\", '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud83d"', '"\\ud83d\\u0041"', '"\\x"',
          "'a'", "\x00", "NaN", "٣"]
# fmt: on


def refuse(constant: str) -> None:
    raise ValueError(constant)


def by_json(text: str) -> object:
    return json.loads(text, parse_constant=refuse)


@given(VALUES, st.sampled_from([None, 0, 1, 4]), st.booleans())
def test_it_reads_what_json_writes(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert read_json(text).plain() == by_json(text)


@given(
    st.lists(st.sampled_from(TOKENS), max_size=14).map("".join)
    | st.text(alphabet='{}[]",:\\u0123aeE+-. \n', max_size=20)
)
def test_it_accepts_exactly_what_json_accepts(text):
    try:
        expected = by_json(text)
    except ValueError:
        with pytest.raises(JsonError):
            read_json(text)
    else:
        assert read_json(text).plain() == expected


@given(VALUES, st.data())
def test_one_character_taken_out_is_judged_as_json_does(value, data):
    text = json.dumps(value)
    position = data.draw(st.integers(0, len(text) - 1))
    damaged = text[:position] + text[position + 1 :]
    try:
        expected = by_json(damaged)
    except ValueError:
        with pytest.raises(JsonError) as caught:
            read_json(damaged)
        assert caught.value.line == 1
        assert 1 <= caught.value.column <= len(damaged) + 1
    else:
        assert read_json(damaged).plain() == expected


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ('{"a": "1"\n "b": "2"}', 1, 10, "a comma is missing here, before '\"'"),
        ('{"a": ["1",\n ]}', 1, 11, "a comma too many before ']'"),
        ('{"a": "1",\n}', 1, 10, "a comma too many before '}'"),
        ("{'a': 1}", 1, 2, "expected a key in double quotes"),
        ("{\n \"a\": 'x'}", 2, 7, "text stands in double quotes"),
        ('{"a"\n "1"}', 2, 2, 'expected ":" after the key "a"'),
        ('{"a": "1\n"}', 1, 7, 'its closing " is missing'),
        ('{"a": [1, 2}', 1, 12, "'}' does not close '[' of line 1"),
        ('[\n{"a": 1},\n', 3, 1, "expected a value, got the end of the file"),
        ('[\n{"a": 1}\n', 3, 1, "the file ends, but '[' of line 1, column 1 is still open"),
        ("[1] # x", 1, 5, "the value ends before this"),
        ("[ // x\n1]", 1, 3, "JSON has no comments"),
        ("[True]", 1, 2, "expected a value, got 'True'"),
        ("[1,, 2]", 1, 4, "expected a value, got ','"),
        ("", 1, 1, "expected a value, got the end of the file"),
        ("[" * 200, 1, 102, "nested more than 100 deep"),
    ],
)  # fmt: skip
def test_a_fault_has_its_place_and_its_cure(text, line, column, message):
    with pytest.raises(JsonError) as caught:
        read_json(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert message in str(caught.value)


def test_values_and_keys_know_their_places_and_repeated_keys_are_kept():
    node = read_json('{\n  "a": [1,\n    {"b": true}],\n  "a": 2\n}')
    assert (node.line, node.column) == (1, 1)
    assert node.key_lines == {"a": 4}
    assert node.repeated == (("a", 4),)
    inner = read_json('{\n  "a": [1,\n    {"b": true}]}').value["a"].value[1]
    assert (inner.line, inner.column, inner.value["b"].column) == (3, 5, 11)
