"""YAML text to values with lines, and back."""

from __future__ import annotations

import math

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from msllm.config.yaml_text import dump_yaml, parse_value, read_yaml_file


def read(tmp_path, content: str | bytes):
    """(tree, problems) of a file with this content."""
    path = tmp_path / "c.yaml"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    problems: list = []
    return read_yaml_file(path, problems), problems


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3e-4", 3e-4),
        ("1E5", 1e5),
        (".5e3", 500.0),
        ("1.e-8", 1e-8),
        ("-2.", -2.0),
        ("8", 8),
        ("+8", 8),
        ("0x10", 16),
        ("0o17", 15),
        ("1_000_000", 1000000),
        ("True", True),
        ("~", None),
        ("", None),
        ("[0.9, 1e-3]", [0.9, 1e-3]),
    ],
)
def test_numbers_and_words_are_read_as_people_mean_them(text, value):
    parsed, _ = parse_value(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    "text", ["010", "1:30", "no", "off", "2020-01-01", "910_9391", "00.5", "1_0", "0b1", "1e", "e5"]
)
def test_what_yaml_1_1_would_turn_into_something_else_stays_text(text):
    assert parse_value(text)[0] == text


def test_not_a_number_is_read_so_that_its_field_can_refuse_it():
    assert math.isnan(parse_value(".NaN")[0])
    assert parse_value("1e999")[0] == math.inf


def test_each_key_has_its_line(tmp_path):
    tree, problems = read(tmp_path, "a:\n  b: 1\n  # note\n  c:\n    - 1\n    - 2\n")
    assert problems == []
    assert tree.values == {"a": {"b": 1, "c": [1, 2]}}
    assert tree.lines == {("a",): 1, ("a", "b"): 2, ("a", "c"): 4, ("a", "c", "0"): 5, ("a", "c", "1"): 6}


def test_anchors_and_merge_keys_work_and_own_keys_win(tmp_path):
    tree, problems = read(tmp_path, "a: &base\n  x: 1\n  y: 2\nb:\n  <<: *base\n  y: 3\nc: *base\n")
    assert problems == []
    assert tree.values == {"a": {"x": 1, "y": 2}, "b": {"x": 1, "y": 3}, "c": {"x": 1, "y": 2}}


def test_every_doubled_key_is_reported_with_both_lines(tmp_path):
    _, problems = read(tmp_path, "a:\n  x: 1\n  x: 2\n  y: 1\n  y: 2\n")
    assert [(p.message, p.line) for p in problems] == [
        ("key a.x is given twice, in lines 2 and 3; keep one", 3),
        ("key a.y is given twice, in lines 4 and 5; keep one", 5),
    ]


@pytest.mark.parametrize(
    ("content", "message", "line"),
    [
        ("a:\n\tb: 1\n", "a tab where YAML needs spaces; indent with spaces", 2),
        ("a: 1\nb: c: d\n", "a second ': ' in one value; quote the text, or check the indentation", 2),
        ("a: [1,\n", "not YAML: ", 2),
        ("a: 1\n---\nb: 1\n", "a second document starts here ('---'); a configuration is one document", 2),
        ("", "the file is empty", None),
        ("# only a comment\n", "the file is empty", None),
        ("- 1\n", "expected sections such as model:, data:, training: at the top, not a list", None),
        ("hello\n", "not a single value ('hello')", None),
        (b"a: 1\nb: \xff\n", "not UTF-8 text: byte 0xff at offset 8", 2),
        (b"a: 1\nb: \x00\n", "not text", None),
        ("a: &x [*x]\n", "an anchor contains itself", 1),
        ("a: !!python/object:os.system {}\n", "tag tag:yaml.org,2002:python/object:os.system has no meaning here", 1),
        ("a: !!int x\n", "'x' is not of the type !!int", 1),
        ("a: 99999999999999999999\n", "the number 99999999999999999999 does not fit in 64 bits", 1),
        ("a: " + "9" * 9000, "does not fit in 64 bits", 1),
        ("a: " + "[" * 5000, "nested too deeply", None),
        ("<<: 1\n", "<<: needs a mapping, as in <<: *name", 1),
        (b"x" * (5 << 20), "larger than 4 MB, so not a configuration", None),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_a_broken_file_is_refused_with_the_place(tmp_path, content, message, line):
    tree, problems = read(tmp_path, content)
    assert tree is None
    assert len(problems) == 1
    assert message in problems[0].message
    assert problems[0].line == line


def test_expanding_anchors_has_a_limit(tmp_path):
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9)]
    tree, problems = read(tmp_path, "\n".join(rows))
    assert tree is None
    assert "more than 100000 values" in problems[0].message


def test_keys_must_be_names(tmp_path):
    _, problems = read(tmp_path, "1: a\n[2]: b\n")
    assert [p.message for p in problems] == ["a key must be a name, not 1", "a key must be a name, not a list"]


@pytest.mark.parametrize("name", ["missing.yaml", "."])
def test_a_missing_file_and_a_folder_are_refused(tmp_path, name):
    problems: list = []
    assert read_yaml_file(tmp_path / name, problems) is None
    assert problems[0].message.startswith("cannot read this configuration: ")


def test_a_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    tree, _ = read(tmp_path, b"\xef\xbb\xbfa: 1\n")
    assert tree.values == {"a": 1}


SCALARS = st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False) | st.text()


@given(st.dictionaries(st.text(min_size=1), SCALARS | st.lists(SCALARS, max_size=3), max_size=5))
def test_what_is_written_reads_back_equal(values):
    text = dump_yaml(values)
    again, _ = parse_value(text)
    assert again == values
    assert repr(again) == repr(values)


@given(st.text())
def test_text_is_text_to_readers_of_yaml_1_1_too(text):
    assert yaml.safe_load(dump_yaml({"a": text})) == {"a": text}
