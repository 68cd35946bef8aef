"""The choice of the tokenizer's library by trying it on the corpus."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from corpora import content, write_jsonl

from data_tools import convert as converting
from data_tools import packing
from data_tools.convert import ConvertSummary
from data_tools.gate import SAMPLE_CHARS, choose_backend, sample_texts
from data_tools.packing import Segment, WrongTokens, token_stream
from data_tools.plan import ConvertRequest, Plan, make_plan
from data_tools.shard import BackendWrong, ShardFolders, convert_shard
from data_tools.sources import find_sources
from data_tools.units import divide, find_units
from msllm.data import backends
from msllm.data.tokenizer import Tokenizer, load_tokenizer
from msllm.errors import InputError, RunError

MARK = "a text with a mark"


def wrong_for(text: str) -> Callable[[Tokenizer, str], backends.Encode]:
    """A backend that is right but for one text."""

    def make(tokenizer: Tokenizer, prepared: str) -> backends.Encode:
        def encode(texts: list[str]) -> backends.Ids:
            ids, counts = tokenizer._encode(texts)
            for place, end in zip(range(len(texts)), np.cumsum(counts)):
                if texts[place] == text:
                    ids[end - 1] ^= 1
            return ids, counts

        return encode

    return make


@pytest.fixture
def plan(tmp_path: Path, documents: list[str], tokenizer_file: Path) -> Plan:
    source = write_jsonl(tmp_path / "a.jsonl", [*documents, MARK])
    return make_plan(ConvertRequest([source], tokenizer_file, 32, tmp_path / "out", shards=3))


def test_the_fastest_that_agrees_is_chosen(plan: Plan, documents: list[str]) -> None:
    pytest.importorskip("gigatoken")
    choice = choose_backend(plan, "auto")
    assert (choice.backend, choice.documents, choice.passed_over) == ("gigatoken", len(documents) + 1, ())
    assert choose_backend(plan, "reference").backend == plan.tokenizer.backend == "reference"


def test_a_difference_in_one_document_of_the_corpus_rules_a_library_out(plan: Plan, monkeypatch) -> None:
    monkeypatch.setattr(backends, "_gigatoken", wrong_for(MARK))
    monkeypatch.setattr(backends, "_kitoken", wrong_for(backends.FUZZ[5]))
    choice = choose_backend(plan, "auto")
    assert choice.backend == "reference"
    assert choice.passed_over[0] == f"gigatoken gives other tokens than sentencepiece for {MARK!r}"
    assert choice.passed_over[1].startswith("kitoken gives other tokens than sentencepiece for '\\x00 nul")
    with pytest.raises(InputError, match="--tokenizer-backend gigatoken gives other tokens"):
        choose_backend(plan, "gigatoken")


def test_a_missing_library_is_passed_over_with_a_word(plan: Plan, monkeypatch) -> None:
    def missing(tokenizer: Tokenizer, prepared: str) -> backends.Encode:
        raise ImportError

    monkeypatch.setattr(backends, "_gigatoken", missing)
    monkeypatch.setattr(backends, "_kitoken", missing)
    choice = choose_backend(plan, "auto")
    assert choice.backend == "reference" and choice.passed_over[0].startswith("gigatoken is not installed")


def test_the_sample_is_spread_over_all_kinds_of_input(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "in" / "a.jsonl", [f"a{i}" for i in range(500)])
    (tmp_path / "in" / "b.jsonl.gz").write_bytes(
        gzip.compress(write_jsonl(tmp_path / "b", [f"b{i}" for i in range(9)]).read_bytes())
    )
    (tmp_path / "in" / "c.txt").write_text("c" * 10 * SAMPLE_CHARS)
    units = [u for part in divide(find_units(find_sources([tmp_path / "in"]).sources, "text"), 5) for u in part]
    some = list(sample_texts(units, "text", 60))
    assert len(some) == len(set(some)) == 60 and {text[0] for text in some} == {"a", "b", "c"}
    everything = list(sample_texts(units, "text", 10_000))
    assert len(everything) == len(set(everything)) == 510 and "c" * SAMPLE_CHARS in everything


def test_the_running_check_finds_a_document_that_the_sample_has_missed(tokenizer_file: Path, monkeypatch) -> None:
    monkeypatch.setattr(backends, "_gigatoken", wrong_for(MARK))
    monkeypatch.setattr(packing, "BATCH_SEGMENTS", 7)
    monkeypatch.setattr(packing, "CHECK_EVERY", 5)
    tokenizer = load_tokenizer(tokenizer_file)
    tokenizer.use("gigatoken")
    texts = [f"text {i}" for i in range(40)]
    texts[25] = MARK
    # The first five segments are one document: segment 25 is in document 21.
    segments = [Segment(text, 0 < i < 5, i >= 4) for i, text in enumerate(texts)]
    with pytest.raises(WrongTokens) as error:
        list(token_stream(segments, tokenizer))
    assert error.value.document == 21
    tokenizer.use("reference")
    list(token_stream(segments, tokenizer))


def test_a_document_that_the_running_check_finds_is_named(plan: Plan, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(backends, "_gigatoken", wrong_for(MARK))
    monkeypatch.setattr(packing, "CHECK_EVERY", 1)
    plan.tokenizer.use("gigatoken")
    folders = ShardFolders(tmp_path / "output", tmp_path / "results", tmp_path / "temporary")
    for path in (folders.output, folders.results, folders.temporary):
        path.mkdir()
    with pytest.raises(BackendWrong, match=r"a\.jsonl:201: gigatoken gives other tokens than sentencepiece"):
        convert_shard(plan.jobs[-1], plan.options, "fail", plan.tokenizer, folders, lambda count, tokens: None)
    assert not list(folders.results.iterdir())


def test_what_a_wrong_library_has_made_is_thrown_away(
    tmp_path: Path, run: Callable[..., ConvertSummary], documents: list[str], monkeypatch
) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    honest = converting.WorkerPool.run

    def found_out(pool, jobs):
        results = (event for event in honest(pool, jobs) if not isinstance(event, converting.Advance))
        yield next(results)
        raise BackendWrong("a.jsonl:7: is wrong", "gigatoken")

    pytest.importorskip("gigatoken")
    with monkeypatch.context() as patch:
        patch.setattr(converting.WorkerPool, "run", found_out)
        with pytest.raises(RunError, match=r"a\.jsonl:7: is wrong\. 1 shard .* --tokenizer-backend reference"):
            run([source], shards=3, backend="gigatoken")
    assert not (tmp_path / "out.partial").exists()
    reference = run([source], shards=3, backend="reference")
    assert reference.resumed_shards == 0 and reference.tokenized.backend == "reference"


def test_bytes_do_not_depend_on_the_library_and_unfinished_work_goes_on_with_another(
    tmp_path: Path, run: Callable[..., ConvertSummary], documents: list[str], monkeypatch
) -> None:
    pytest.importorskip("gigatoken")
    pytest.importorskip("kitoken")
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    names = ("gigatoken", "kitoken", "reference")
    outputs = [run([source], shards=2, backend=name, output=tmp_path / name).output for name in names]
    assert content(outputs[0]) == content(outputs[1]) == content(outputs[2])
    honest = converting.WorkerPool.run

    def interrupted(pool, jobs):
        yield next(event for event in honest(pool, jobs) if not isinstance(event, converting.Advance))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(converting.WorkerPool, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run([source], shards=2, backend="gigatoken")
    end = run([source], shards=2, backend="reference")
    assert end.resumed_shards == 1 and content(end.output) == content(outputs[0])
