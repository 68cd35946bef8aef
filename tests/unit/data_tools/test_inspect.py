"""What a dataset holds, decoded and counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_tools.inspect import inspect
from msllm.data.manifest import read_manifest
from msllm.errors import InputError


def test_inspect_decodes_rows_and_counts_tokens(dataset: Path, documents: list[str]) -> None:
    inspection = inspect(dataset, rows=2, start=0)
    assert [row.index for row in inspection.rows] == [0, 1]
    assert (
        inspection.rows[0].documents[0].strip() in documents[0]
        or documents[0].strip() in inspection.rows[0].documents[0]
    )
    assert all(len(row.ids) == 33 for row in inspection.rows)
    statistics = inspection.statistics
    assert statistics.rows == read_manifest(dataset).rows and 0 < statistics.distinct <= 500
    assert sum(count for _, _, count in statistics.frequent) <= statistics.rows * 32
    assert statistics.frequent[0][2] >= statistics.frequent[-1][2]
    last = read_manifest(dataset).rows - 1
    assert [row.index for row in inspect(dataset, rows=5, start=last).rows] == [last]
    with pytest.raises(InputError, match=rf"--start \({last + 1}\) must be in 0..{last}"):
        inspect(dataset, start=last + 1)
