"""Conversions in competition."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from corpora import write_jsonl

from data_tools.bench import Contestant, Score, compete, other, ours, repeat_corpus
from msllm.errors import InputError, RunError


def test_a_corpus_is_repeated_to_its_size_with_the_same_documents(tmp_path: Path, documents: list[str]) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    count = repeat_corpus([source], "text", 200_000, tmp_path / "b.jsonl")
    texts = [orjson.loads(line)["text"] for line in (tmp_path / "b.jsonl").read_bytes().splitlines()]
    assert len(texts) == count and set(texts) == set(documents)
    assert 200_000 <= (tmp_path / "b.jsonl").stat().st_size < 202_000
    assert repeat_corpus([source], "text", 200_000, tmp_path / "c.jsonl") == count
    assert (tmp_path / "c.jsonl").read_bytes() == (tmp_path / "b.jsonl").read_bytes()
    write_jsonl(tmp_path / "empty.jsonl", [" "])
    with pytest.raises(InputError, match="holds no document that can be used"):
        repeat_corpus([tmp_path / "empty.jsonl"], "text", 1000, tmp_path / "d.jsonl")


def test_everyone_runs_in_turn_on_the_corpus_with_a_fresh_output(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = "import sys, pathlib; out = pathlib.Path(sys.argv[2]); assert not out.exists(); out.write_text('x')"
    code += f"; open({str(log)!r}, 'a').write(sys.argv[1] + ' ' + sys.argv[3] + chr(10))"
    one, two = (
        Contestant(name, [sys.executable, "-c", code, "{input}" + name, "{output}", "{tokenizer}"]) for name in "ab"
    )
    said: list[str] = []
    scores, tokens = compete([one, two], "corpus", Path("t.model"), 2, said.append)
    assert log.read_text() == "corpusa t.model\ncorpusb t.model\n" * 2
    assert [score.name for score in scores] == ["a", "b"] and tokens == 0
    assert all(len(score.seconds) == len(score.cpu_seconds) == 2 for score in scores)
    assert [text.split(":")[:2] for text in said] == [[f"round {i}", f" {name}"] for i in (1, 2) for name in "ab"]


def test_one_that_fails_is_named_with_what_it_said() -> None:
    code = "import sys; sys.exit('no such thing')"
    with pytest.raises(RunError, match="theirs ended with exit code 1: no such thing"):
        compete([Contestant("theirs", [sys.executable, "-c", code])], "corpus", Path("t"), 1)


def test_scores_are_medians_and_compare_with_the_first() -> None:
    slow = Score("slow", [10.0, 30.0, 20.0], [40.0, 40.0, 50.0], [1, 3, 2])
    fast = Score("fast", [5.0], [10.0], [7])
    result = fast.to_dict(100, slow)
    assert (result["times_as_fast"], result["times_less_cpu"], result["tokens_per_second"]) == (4, 4, 20)
    assert slow.to_dict(100, slow)["peak_bytes"] == 3 and slow.to_dict(100, slow)["times_as_fast"] == 1


@pytest.mark.parametrize("text", ["name", "=cmd {input}", "a=cmd", "a=cmd '{input}"])
def test_another_program_needs_a_name_and_a_command_with_the_corpus(text: str) -> None:
    with pytest.raises(InputError, match="--versus"):
        other(text)
    assert other("a b=x --in={input} 'y z'") == Contestant("a b", ["x", "--in={input}", "y z"])


def test_descendants_that_outlive_their_parents_are_waited_for_and_counted(tmp_path: Path) -> None:
    busy = "import time; t = time.process_time()\nwhile time.process_time() < t + 0.3: pass\n"
    busy += f"open({str(tmp_path / 'end')!r}, 'w')"
    parent = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {busy!r}])"
    code = "import sys; from data_tools.measure import measure; sys.exit(measure(sys.argv[1:]))"
    done = subprocess.run(
        [sys.executable, "-c", code, sys.executable, "-c", parent], capture_output=True, text=True, check=True
    )
    assert (tmp_path / "end").exists()
    assert json.loads(done.stdout)["cpu_seconds"] >= 0.3


def test_a_backend_that_there_is_not_is_refused_before_anything_runs() -> None:
    with pytest.raises(InputError, match=r"--backends \(gigatokn\) must be of auto, gigatoken, kitoken, reference"):
        ours("gigatokn", 1, 32)


def test_a_conversion_of_ours_counts_its_tokens(tmp_path: Path, documents: list[str], tokenizer_file: Path) -> None:
    source = write_jsonl(tmp_path / "a.jsonl", documents)
    scores, tokens = compete([ours("reference", 1, 32)], str(source), tokenizer_file, 1)
    assert tokens > 0 and scores[0].peak_bytes[0] > 0 and scores[0].name == "msllm reference, 1 worker"
