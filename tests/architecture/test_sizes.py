"""Files, functions and graphs that fit in a head."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("msllm", "models", "data_tools", "rank_tables", "scripts", "tests")
FILE_LINES, FUNCTION_LINES, CONSTRUCT_LINES = 400, 60, 30


def python_files() -> list[Path]:
    return [file for folder in FOLDERS if (ROOT / folder).is_dir() for file in sorted((ROOT / folder).rglob("*.py"))]


def body_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines after the signature and the docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body else 0  # type: ignore[operator]


@pytest.mark.parametrize("file", python_files(), ids=lambda file: str(file.relative_to(ROOT)))
def test_a_file_and_its_functions_stay_short(file: Path):
    text = file.read_text(encoding="utf-8")
    too_long = []
    if text.count("\n") > FILE_LINES:
        too_long.append(f"the file: {text.count(chr(10))} lines, at most {FILE_LINES}")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            limit = CONSTRUCT_LINES if node.name == "construct" else FUNCTION_LINES
            if body_lines(node) > limit:
                too_long.append(f"{node.name}, line {node.lineno}: {body_lines(node)} lines, at most {limit}")
    assert too_long == []


def test_no_two_test_files_have_the_same_name():
    """pytest imports them by their names alone and cannot collect the second."""
    names = [file.name for file in (ROOT / "tests").rglob("test_*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
