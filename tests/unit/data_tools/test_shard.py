"""One shard: its rows, its tail, its faults."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora import expected, stream, write_jsonl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data_tools.plan import ConvertRequest, make_plan
from data_tools.readers import UnitReader
from data_tools.shard import OnError, ShardFolders, ShardResult, convert_shard
from msllm.errors import InputError, RunError


@settings(max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(
    documents=st.lists(
        st.text(alphabet=" \nabcé你😀", min_size=1, max_size=80).filter(lambda text: not text.isspace()),
        min_size=1,
        max_size=30,
    ),
    shards=st.integers(1, 4),
    seq_length=st.integers(1, 40),
)
def test_rows_give_exactly_the_token_stream_for_any_shards_and_length(
    fresh_folder: Callable[[], Path], tokenizer_file: Path, documents: list[str], shards: int, seq_length: int
) -> None:
    folder = fresh_folder()
    source = write_jsonl(folder / "a.jsonl", documents)
    plan = make_plan(ConvertRequest([source], tokenizer_file, seq_length, folder / "out", shards=shards))
    folders = ShardFolders(folder / "output", folder / "results", folder / "temporary")
    for path in (folders.output, folders.results, folders.temporary):
        path.mkdir()
    results = [convert_shard(job, plan.options, "fail", plan.tokenizer, folders, lambda *_: None) for job in plan.jobs]
    got = [token for result in results if result.info for token in stream(folders.output, result.info)]
    assert got == expected(tokenizer_file, documents)
    assert sum(result.documents for result in results) == len(documents)
    assert len(list(folders.results.iterdir())) == shards


def shard(
    folder: Path, tokenizer_file: Path, content: bytes, on_error: OnError = "fail", **options: Any
) -> ShardResult:
    """The only shard of a file."""
    (folder / "a.jsonl").write_bytes(content)
    plan = make_plan(ConvertRequest([folder / "a.jsonl"], tokenizer_file, 8, folder / "out", shards=1, **options))
    folders = ShardFolders(folder / "output", folder / "results", folder / "temporary")
    for path in (folders.output, folders.results, folders.temporary):
        path.mkdir()
    return convert_shard(plan.jobs[0], plan.options, on_error, plan.tokenizer, folders, lambda *_: None)


def test_a_finished_shard_has_left_its_result_and_no_temporary_file(tmp_path: Path, tokenizer_file: Path) -> None:
    result = shard(tmp_path, tokenizer_file, b'{"text": "the tensor of the graph"}\n' * 9)
    assert result.info is not None and result.documents == 9
    assert sorted(path.name for path in (tmp_path / "output").iterdir()) == [
        "shard-00000.mindrecord",
        "shard-00000.mindrecord.db",
    ]
    mark = tmp_path / "results" / "shard-00000.mindrecord.json"
    assert ShardResult.model_validate_json(mark.read_text()) == result
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_shard_without_a_row_has_a_result_and_no_file(tmp_path: Path, tokenizer_file: Path) -> None:
    result = shard(tmp_path, tokenizer_file, b'{"text": "x"}\n', tail="drop")
    assert result.info is None and result.dropped_tokens == result.tokens > 0
    assert list((tmp_path / "output").iterdir()) == []


def test_a_bad_document_stops_a_shard_without_a_result(tmp_path: Path, tokenizer_file: Path) -> None:
    with pytest.raises(InputError) as error:
        shard(tmp_path, tokenizer_file, b'{"text": "x"}\n{\n')
    assert str(error.value).startswith(f"{tmp_path / 'a.jsonl'}:2: broken JSON")
    assert "1 document that cannot be used was found before stopping: 1 x broken JSON" in str(error.value)
    assert list((tmp_path / "results").iterdir()) == list((tmp_path / "output").iterdir()) == []


def test_a_skipped_document_is_counted_in_the_result(tmp_path: Path, tokenizer_file: Path) -> None:
    result = shard(tmp_path, tokenizer_file, b'{"text": "a b c d e f g h i j"}\n{\n', on_error="skip")
    assert (result.documents, result.skipped, result.faults[0].line) == (1, {"broken JSON": 1}, 2)


def test_an_input_that_changes_meanwhile_is_said_to_have_changed(
    tmp_path: Path, tokenizer_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = UnitReader.__iter__

    def read_and_touch(self: UnitReader):
        yield from read(self)
        os.utime(self.unit.source.path, ns=(1, 1))

    monkeypatch.setattr(UnitReader, "__iter__", read_and_touch)
    with pytest.raises(RunError, match=r"a\.jsonl: changed while it was converted; run again with --restart"):
        shard(tmp_path, tokenizer_file, b'{"text": "x"}\n')
