"""`msllm bench convert`: whole conversions timed as processes, in turn with one another and with other programs.

A rate holds for one machine and moment, and other programs on it change it within seconds. So the contestants run in turn,
several rounds of them, and what is compared are medians; processor seconds are measured beside the time on the clock, as
other programs hardly change them.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from data_tools.readers import Piece, UnitReader
from data_tools.sources import find_sources
from data_tools.units import find_units
from msllm.data.backends import BACKENDS
from msllm.errors import InputError, RunError

PLACEHOLDERS = ("{input}", "{output}", "{tokenizer}")
"""What stands for the corpus, a new path and the tokenizer in the command of another program."""


@dataclass(frozen=True)
class Contestant:
    """Something that converts the corpus."""

    name: str
    command: Sequence[str]
    """With placeholders."""


@dataclass
class Score:
    """What a contestant took, one number a round."""

    name: str
    seconds: list[float] = field(default_factory=list)
    """On the clock, from the start of the process to the end of its last descendant."""
    cpu_seconds: list[float] = field(default_factory=list)
    """Of the process and all its descendants."""
    peak_bytes: list[int] = field(default_factory=list)
    """Resident memory of the largest of them."""

    def to_dict(self, tokens: int, first: Score) -> dict[str, Any]:
        """Medians, and how much faster than `first`."""
        seconds, cpu = statistics.median(self.seconds), statistics.median(self.cpu_seconds)
        return {
            "name": self.name,
            "seconds": seconds,
            "cpu_seconds": cpu,
            "tokens_per_second": tokens / seconds,
            "peak_bytes": max(self.peak_bytes),
            "times_as_fast": statistics.median(first.seconds) / seconds,
            "times_less_cpu": statistics.median(first.cpu_seconds) / cpu,
            "rounds": [{"seconds": s, "cpu_seconds": c} for s, c in zip(self.seconds, self.cpu_seconds)],
        }


def ours(backend: str, workers: int, seq_length: int, text_key: str = "text") -> Contestant:
    """`msllm data convert` with a tokenizer backend and a number of workers.

    Raises:
        InputError: no such backend.
    """
    if backend not in ("auto", *BACKENDS):
        raise InputError(f"--backends ({backend}) must be of auto, {', '.join(BACKENDS)}")
    options = ["--tokenizer-backend", backend, "--workers", str(workers), "--seq-length", str(seq_length)]
    places = ["-i", "{input}", "--tokenizer", "{tokenizer}", "-o", "{output}", "--text-key", text_key, "--json"]
    command = [sys.executable, "-c", "from msllm.cli import main; main()", "data", "convert", *places, *options]
    return Contestant(f"msllm {backend}, {workers} {'worker' if workers == 1 else 'workers'}", command)


def other(text: str) -> Contestant:
    """Another program, from `NAME=COMMAND`.

    Raises:
        InputError: no name, no command, or none that names the corpus.
    """
    name, _, command = text.partition("=")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(f"--versus {text}: {error}") from None
    if not name.strip() or not words or "{input}" not in command:
        places = ", ".join(PLACEHOLDERS)
        raise InputError(
            f"--versus must be NAME=COMMAND, with {places} in the command for what the bench fills in: {text}"
        )
    return Contestant(name.strip(), words)


def repeat_corpus(inputs: Sequence[str | Path], text_key: str, size: int, output: Path) -> int:
    """Write documents of the input, shuffled anew each time round, to a .jsonl of about `size` bytes; returns how many.

    Raises:
        InputError: no input, or no document in it that can be used.
    """
    units = find_units(find_sources(inputs).sources, text_key)
    texts: list[str] = []
    held = 0
    for unit in units:
        for item in UnitReader(unit, text_key):
            if isinstance(item, Piece) and item.last and item.text and held < size:
                texts.append(item.text)
                held += len(item.text)
    if not texts:
        raise InputError("--input holds no document that can be used")
    draw = random.Random(0)
    written = documents = 0
    with open(output, "wb") as file:
        while written < size:
            draw.shuffle(texts)
            for text in texts:
                written += file.write(orjson.dumps({text_key: text}) + b"\n")
                documents += 1
                if written >= size:
                    break
    return documents


def compete(
    contestants: Sequence[Contestant],
    corpus: str,
    tokenizer: Path,
    rounds: int,
    said: Callable[[str], None] = lambda text: None,
) -> tuple[list[Score], int]:
    """Let everyone convert the corpus `rounds` times, in turn; returns the scores, and the tokens of one of ours.

    Raises:
        RunError: one of them failed; with the end of what it said.
    """
    scores = [Score(contestant.name) for contestant in contestants]
    tokens = 0
    with tempfile.TemporaryDirectory(prefix="msllm-bench-") as scratch:
        for turn in range(rounds):
            for contestant, score in zip(contestants, scores):
                target = Path(scratch, "out")
                filled = {"{input}": corpus, "{output}": str(target), "{tokenizer}": str(tokenizer)}
                command = [_filled(word, filled) for word in contestant.command]
                result = _measured(command, contestant.name)
                score.seconds.append(result["seconds"])
                score.cpu_seconds.append(result["cpu_seconds"])
                score.peak_bytes.append(result["peak_bytes"])
                manifest = target / "manifest.json"
                if manifest.exists():
                    tokens = json.loads(manifest.read_bytes())["tokens"]
                said(
                    f"round {turn + 1}: {contestant.name}: {result['seconds']:.1f} s, {result['cpu_seconds']:.1f} s of CPU"
                )
                _clear(Path(scratch))
    return scores, tokens


def _filled(word: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def _measured(command: Sequence[str], name: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "data_tools.measure", *command], capture_output=True, text=True, check=False
    )
    if done.returncode:
        tail = "\n".join((done.stderr or done.stdout).strip().splitlines()[-5:])
        raise RunError(f"{name} ended with exit code {done.returncode}: {tail}")
    return json.loads(done.stdout.splitlines()[-1])


def _clear(folder: Path) -> None:
    for entry in folder.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        else:
            os.unlink(entry)
