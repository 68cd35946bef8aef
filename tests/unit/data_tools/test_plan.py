"""What a conversion will do, and what is wrong with it, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from corpora import write_jsonl

from data_tools.convert import ConvertSummary
from data_tools.plan import ConvertRequest, Plan, make_plan
from msllm.errors import InputError

Convert = Callable[..., ConvertSummary]


def test_empty_corpus(tmp_path: Path, run: Convert) -> None:
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(InputError, match="--input is empty: 1 file of 0 bytes"):
        run([tmp_path / "a.txt"])


def test_all_wrong_arguments_are_named_at_once(tmp_path: Path, run: Convert) -> None:
    with pytest.raises(InputError) as error:
        run([tmp_path / "no"], seq_length=0, shards=1001, workers=0, tokenizer=tmp_path / "no.model", text_key="")
    text = str(error.value)
    for part in (
        "--seq-length (0)",
        "--shards (1001)",
        "--workers (0)",
        "--text-key",
        "no.model",
        "--input no such file",
    ):
        assert part in text


def plan(tmp_path: Path, tokenizer_file: Path, **options: Any) -> Plan:
    source = write_jsonl(tmp_path / "a.jsonl", ["one two", "three"] * 20)
    return make_plan(ConvertRequest([source], tokenizer_file, 8, tmp_path / "out", **options))


def test_each_shard_has_a_job_and_the_units_are_the_input(tmp_path: Path, tokenizer_file: Path) -> None:
    made = plan(tmp_path, tokenizer_file, shards=3)
    assert [job.file for job in made.jobs] == [f"shard-0000{number}.mindrecord" for number in range(3)]
    units = [unit for job in made.jobs for unit in job.units]
    assert sum(unit.end - unit.start for unit in units) == made.inputs.size
    assert made.options.shards == 3 and made.tokenizer.vocab_size == 500


def test_going_on_depends_on_options_tokenizer_versions_and_input_and_not_on_workers(
    tmp_path: Path, tokenizer_file: Path
) -> None:
    first = plan(tmp_path, tokenizer_file, shards=3, workers=1).identity()
    assert set(first) == {"options", "tokenizer", "versions", "inputs"}
    second = plan(tmp_path, tokenizer_file, shards=3, workers=2, on_error="skip").identity()
    assert {**second, "inputs": 0} == {**first, "inputs": 0}  # the input was written again: newer
    assert plan(tmp_path, tokenizer_file, shards=4).identity()["options"] != first["options"]
    other = plan(tmp_path, tokenizer_file, shards=3, eod_token="<s>")
    assert other.identity()["options"]["eod_token"] == "<s>"
