"""Servers to look at."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import Played, played

from msllm.doctor.examine import Report, examine
from msllm.doctor.visit import Finding, Request


@pytest.fixture
def server(tmp_path: Path) -> Callable[..., Played]:
    """Make a server of recordings and transcripts."""
    made = iter(range(100))
    return lambda *transcripts: played(tmp_path / f"server{next(made)}", *transcripts)


@pytest.fixture
def diagnose(server: Callable[..., Played]) -> Callable[..., Report]:
    """Examine a server of recordings and transcripts; keywords go to the request, or to the host."""

    def run(*transcripts: str, **options: object) -> Report:
        asked = {name: options.pop(name) for name in list(options) if name in Request.__dataclass_fields__}
        return examine(server(*transcripts).host(**options), Request(**asked))  # type: ignore[arg-type]

    return run


@pytest.fixture
def first(diagnose: Callable[..., Report]) -> Callable[..., Finding]:
    """The finding that is named first."""
    return lambda *transcripts, **options: diagnose(*transcripts, **options).findings[0]
