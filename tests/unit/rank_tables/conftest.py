"""Examples to spoil, and servers that answer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rank_table_samples import EXAMPLES


@pytest.fixture
def example() -> Callable[[str], dict[str, Any]]:
    """An example by name, as plain values to spoil."""
    return lambda name: json.loads((EXAMPLES / f"{name}.json").read_text())


@pytest.fixture
def fake_tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Put commands on the PATH: name -> shell script."""
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def add(**scripts: str) -> None:
        for name, body in scripts.items():
            path = folder / name.replace("_smi", "-smi")
            path.write_text(f"#!/bin/sh\n{body}\n")
            path.chmod(0o755)

    return add
