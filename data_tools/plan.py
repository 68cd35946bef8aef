"""What a conversion is asked to do, as a pure function of inputs and options; the same on every machine and run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from data_tools.assemble import Recipe
from data_tools.shard import OnError, ShardJob
from data_tools.sources import Inputs, find_sources
from data_tools.units import MAX_SHARDS, default_shards, divide, find_units
from data_tools.words import counted
from msllm import __version__
from msllm.data.manifest import ConvertOptions, TokenizerInfo, unfinished_folder
from msllm.data.mindrecord import MAX_SEQ_LENGTH
from msllm.data.tokenizer import Tokenizer, load_tokenizer
from msllm.errors import InputError, Problem


@dataclass(frozen=True)
class ConvertRequest:
    """The arguments of `msllm data convert`."""

    inputs: Sequence[str | Path]
    """Files, folders and patterns."""
    tokenizer: Path
    """SentencePiece .model, Hugging Face tokenizer.json, or a folder that holds one."""
    seq_length: int
    """Tokens of a row that are predicted."""
    output: Path
    """Folder that becomes the dataset; it must not exist, or be empty, unless it is to be reused or overwritten."""
    shards: int | None = None
    """Number of MindRecord files; None: by the size of the input."""
    workers: int | None = None
    """Processes; None: one per core. The output does not depend on it."""
    text_key: str = "text"
    eod_token: str | None = None
    on_error: OnError = "fail"
    tail: Literal["pad", "drop"] = "pad"
    backend: Literal["auto", "gigatoken", "kitoken", "reference"] = "auto"
    """Library that tokenizes; auto: the fastest that gives the reference's ids. The output does not depend on it."""
    overwrite: bool = False
    """Replace a finished dataset that differs."""
    restart: bool = False
    """Throw away an unfinished conversion that differs."""
    num_parts: int | None = None
    """Parts into which the conversion is divided, for a scheduler's jobs; None: it is not."""
    part: int | None = None
    """The one to make, from 1."""
    dask: str | None = None
    """Address of a Dask scheduler whose workers make the shards; None: processes of this machine."""


@dataclass(frozen=True)
class Plan:
    """Everything that decides about the output's bytes."""

    options: ConvertOptions
    inputs: Inputs
    tokenizer: Tokenizer
    jobs: tuple[ShardJob, ...]

    @property
    def tokenizer_file(self) -> str:
        """Name of the tokenizer's copy in the dataset."""
        return "tokenizer.model" if self.tokenizer.type == "sentencepiece" else "tokenizer.json"

    @cached_property
    def recipe(self) -> Recipe:
        """What a manifest says beside its shards."""
        tokenizer = self.tokenizer
        info = TokenizerInfo(type=tokenizer.type, file=self.tokenizer_file, fingerprint=tokenizer.fingerprint)
        return Recipe(
            options=self.options,
            tokenizer=info,
            eod_id=tokenizer.eod_id,
            vocab_size=tokenizer.vocab_size,
            versions=self.versions,
        )

    @cached_property
    def versions(self) -> dict[str, str]:
        """Packages that the output may depend on."""
        return package_versions(self.tokenizer.type)

    def identity(self) -> dict[str, Any]:
        """What must be the same for an unfinished conversion to go on."""
        return {
            "options": self.options.model_dump(mode="json"),
            "tokenizer": {"type": self.tokenizer.type, "fingerprint": self.tokenizer.fingerprint},
            "versions": self.versions,
            "inputs": {source.path: [source.size, source.mtime_ns] for source in self.inputs.sources},
        }


def package_versions(tokenizer_type: Literal["sentencepiece", "huggingface"]) -> dict[str, str]:
    """Versions of the packages that the output may depend on, as they are installed here."""
    packages = {"sentencepiece": "sentencepiece", "huggingface": "tokenizers"}
    names = ("mindspore", packages[tokenizer_type])
    return {"msllm": __version__, **{name: version(name) for name in names}}


def make_plan(request: ConvertRequest) -> Plan:
    """Check a request and work out its shards.

    Raises:
        InputError: with all that is wrong with the arguments, the tokenizer and the input files.
    """
    problems = _argument_problems(request)
    tokenizer: Tokenizer | None = None
    inputs = Inputs()
    try:
        tokenizer = load_tokenizer(request.tokenizer, request.eod_token)
    except InputError as error:
        problems.extend(error.problems)
    try:
        inputs = find_sources(request.inputs, _own_files(request))
        if inputs.size == 0:
            problems.append(Problem(f"--input is empty: {counted(len(inputs.sources), 'file')} of 0 bytes"))
    except InputError as error:
        problems.extend(error.problems)
    if problems or tokenizer is None:
        raise InputError(problems)
    units = find_units(inputs.sources, request.text_key)
    options = ConvertOptions(
        seq_length=request.seq_length,
        shards=request.shards or default_shards(units),
        text_key=request.text_key,
        eod_token=request.eod_token,
        tail=request.tail,
    )
    jobs = [ShardJob(number, tuple(part)) for number, part in enumerate(divide(units, options.shards))]
    if request.part is not None and request.num_parts is not None:
        if request.num_parts > len(jobs):
            shards = f"the number of shards ({len(jobs)}); set --shards to at least that"
            raise InputError(f"--num-parts ({request.num_parts}) must be at most {shards}")
        jobs = jobs[request.part - 1 :: request.num_parts]
    return Plan(options, inputs, tokenizer, tuple(jobs))


def _argument_problems(request: ConvertRequest) -> list[Problem]:
    problems = []
    if not 1 <= request.seq_length <= MAX_SEQ_LENGTH:
        problems.append(f"--seq-length ({request.seq_length}) must be between 1 and {MAX_SEQ_LENGTH}")
    if request.shards is not None and not 1 <= request.shards <= MAX_SHARDS:
        problems.append(f"--shards ({request.shards}) must be between 1 and {MAX_SHARDS}")
    if request.workers is not None and request.workers < 1:
        problems.append(f"--workers ({request.workers}) must be at least 1")
    if (request.num_parts is None) != (request.part is None):
        problems.append("--num-parts and --part go together")
    elif request.num_parts is not None and not 1 <= (request.part or 0) <= request.num_parts:
        problems.append(f"--part ({request.part}) must be between 1 and --num-parts ({request.num_parts})")
    if request.dask is not None and request.workers is not None:
        problems.append("--workers is for this machine; with --dask the cluster has its workers")
    if not request.text_key:
        problems.append("--text-key must not be empty")
    return [Problem(problem) for problem in problems]


def _own_files(request: ConvertRequest) -> dict[str | Path, str]:
    """What is no input even where it lies in an input folder."""
    output = Path(request.output)
    parts = [path for path in output.absolute().parent.glob("*") if path.name.startswith(f"{output.name}.part-")]
    outputs = (output, unfinished_folder(output), *parts)
    return {**dict.fromkeys(outputs, "the output"), request.tokenizer: "the tokenizer"}
