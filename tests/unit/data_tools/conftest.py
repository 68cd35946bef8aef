"""A tiny corpus, its dataset, and conversions with few words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from data_tools.convert import ConvertSummary, convert
from data_tools.plan import ConvertRequest

Convert = Callable[..., ConvertSummary]


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory, documents: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents))
    return folder


@pytest.fixture(scope="session")
def dataset(tmp_path_factory: pytest.TempPathFactory, corpus: Path, tokenizer_file: Path) -> Path:
    output = tmp_path_factory.mktemp("data") / "set"
    convert(ConvertRequest([corpus], tokenizer_file, 32, output, shards=3, workers=2), quiet=True)
    return output


@pytest.fixture
def copy(dataset: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(dataset, tmp_path / "set"))


@pytest.fixture
def run(tmp_path: Path, tokenizer_file: Path) -> Convert:
    """Convert with defaults for what a test does not care about."""

    def run(inputs: Sequence[Path], **options: Any) -> ConvertSummary:
        options = {"seq_length": 32, "output": tmp_path / "out", "workers": 1, "tokenizer": tokenizer_file} | options
        return convert(ConvertRequest(inputs=inputs, **options), quiet=True)

    return run


@pytest.fixture(autouse=True)
def graph_mode() -> None:
    """No graph is compiled in this folder, so nothing has to be collected before each test."""
