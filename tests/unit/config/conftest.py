"""The import of a MindFormers YAML, as tests use it."""

from __future__ import annotations

import pytest

from msllm.config.mindformers import import_mindformers
from msllm.config.yaml_text import parse_value
from msllm.registry import MODEL_CONFIGS


@pytest.fixture
def convert(tmp_path):
    """Import a text: (the report, the values of the written file)."""

    def run(text: str):
        source, output = tmp_path / "mf.yaml", tmp_path / "ours.yaml"
        source.write_text(text)
        output.unlink(missing_ok=True)
        imported = import_mindformers(source, output, MODEL_CONFIGS)
        return imported, parse_value(output.read_text())[0]

    return run


@pytest.fixture
def reason_of():
    """Why a path, or a branch that holds it, was not carried over."""

    def reason(imported, path: str) -> str:
        reasons = [r for r, paths in imported.dropped.items() if any(f"{path}.".startswith(f"{p}.") for p in paths)]
        assert reasons, path
        return reasons[0]

    return reason
