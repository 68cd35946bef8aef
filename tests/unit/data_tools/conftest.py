from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def graph_mode() -> None:
    """No graph is compiled in this folder, so nothing has to be collected before each test."""
