"""`msllm check` against MindSpore's Ascend compiler: what the one accepts the other compiles; what it refuses the compiler
refuses as well, or takes without a word and means something else, as docs/strategies.md says."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from compile_server import sections_of
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from msllm.config.checks import cross_faults
from msllm.config.sections import ParallelConfig
from msllm.config.yaml_text import dump_yaml
from msllm.rehearsal.environment import simulated_environment

ROOT = Path(__file__).parents[2]
ONCE: dict[str, Any] = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "phases": [Phase.generate],  # a smaller example costs as much as another one, and says no more
    "suppress_health_check": list(HealthCheck),
}
SIZES = (8, 4, 2, 1, 16)
DEGREES = [
    (tensor, data, stages)
    for size in SIZES
    for tensor in (2, 1, 4, 8)
    for data in (2, 1, 4)
    for stages in (2, 1, 4)
    if tensor * data * stages == size
]
"""Hypothesis begins with the first of everything, so that stands first which has most in it."""
ON_OFF = st.sampled_from([True, False])
PRECISIONS = [
    {"amp_level": "O2", "compute_dtype": "bfloat16"},
    {"amp_level": "O2", "compute_dtype": "float16", "loss_scale": {}},
    {"amp_level": "O0", "compute_dtype": "float32"},
    {"amp_level": "O1", "compute_dtype": "bfloat16"},
    {"amp_level": "O3", "compute_dtype": "bfloat16"},
]
SILENT = {
    r"micro_batch_num .* must be (at least|divisible by) pipeline_stage": "compile silently: too few under lazy inline",
    r"seq_length .* under use_seq_parallel": "sequences cut at odd places",
    r"gradient_accumulation_steps .* must be 1 with": "it is ignored silently",
    r"makes embedding and head one matrix": "one matrix on two stages",
    r"recompute .* (wants|has|changes nothing)": "they are cut off silently",
    r"(use_seq_parallel|enable_parallel_optimizer) \(true\) needs": "nothing happens, silently",
    r"parallel_optimizer_config changes nothing": "nothing happens, silently",
    r"(pp_interleave_num|expert_parallel) .* needs|is not built": "nothing happens, silently",
    r"global_batch_size .* must be divisible": "samples left out silently",
    r"offset .* (changes nothing|numbers in a list|would be added)": "nothing happens, silently",
}
"""Messages of rules that the compiler may not know -> what docs/strategies.md says would happen."""


@st.composite
def runs(draw: Any) -> dict[str, Any]:
    """Sections of a tiny model under a strategy that is legal."""
    tensor, data, stages = draw(st.sampled_from(DEGREES))
    chunks = draw(st.sampled_from([1, 2])) if stages == 2 else 1
    layers = stages * chunks * (draw(st.sampled_from([1, 2])) if stages < 4 else 1)
    offset: Any = 0
    if stages > 1 and chunks == 1 and draw(ON_OFF):
        offset, layers = [0] * (stages - 1) + [1], layers + 1
    parallel = {
        "data_parallel": data,
        "model_parallel": tensor,
        "pipeline_stage": stages,
        "pp_interleave_num": chunks,
        "micro_batch_num": stages * draw(st.sampled_from([1, 2])) if stages > 1 else 1,
        "offset": offset,
        "use_seq_parallel": tensor > 1 and draw(ON_OFF),
        "vocab_emb_dp": draw(st.booleans()),
        "enable_parallel_optimizer": data > 1 and draw(ON_OFF),
    }
    if parallel["enable_parallel_optimizer"]:
        parallel["parallel_optimizer_config"] = {
            "parallel_optimizer_threshold": draw(st.sampled_from([0, 1, 64])),
            "gradient_accumulation_shard": draw(st.booleans()),
        }
    accumulation = draw(st.sampled_from([1, 2])) if stages == 1 else 1
    parts = parallel["micro_batch_num"] * accumulation
    return {
        "model": draw(models(tensor, stages, layers, parallel["vocab_emb_dp"])),
        "data": {"train_dataset": "d", "seq_length": tensor * draw(st.integers(2, 4))},
        "training": {
            "train_steps": 4,
            "global_batch_size": data * parts * draw(st.sampled_from([1, 3])),
            "gradient_accumulation_steps": accumulation,
            "device_target": "Ascend",
            **draw(st.sampled_from(PRECISIONS)),
        },
        "parallel_config": parallel,
        "recompute_config": draw(recomputations(parallel, layers)),
    }


@st.composite
def models(draw: Any, tensor: int, stages: int, layers: int, whole_vocab: bool) -> dict[str, Any]:
    heads = tensor * draw(st.sampled_from([2, 1, 3]))
    common = {
        "hidden_size": 8 * heads,
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "vocab_size": draw(st.integers(30, 40)) * (1 if whole_vocab else tensor),
        "intermediate_size": tensor * draw(st.integers(5, 9)),
        "max_position_embeddings": 64,
    }
    if stages == 1 and draw(st.booleans()):
        return {"model_type": "gpt2", **common}
    tied = stages == 1 and draw(st.booleans())
    kv_heads = draw(st.sampled_from([tensor, heads]))
    return {"model_type": "llama", **common, "num_key_value_heads": kv_heads, "tie_word_embeddings": tied}


@st.composite
def recomputations(draw: Any, parallel: dict[str, Any], layers: int) -> dict[str, Any]:
    stages = parallel["pipeline_stage"]
    least = layers // stages
    full = draw(st.sampled_from([False, True, [1] + [0] * (stages - 1)]))
    left = full is False or (full is not True and (least > 1 or stages > 1))
    return {"recompute": full, "select_recompute": left and draw(ON_OFF)}


def changes(values: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """(section, key, value) of what may go wrong in a legal configuration, one at a time."""
    model, parallel = values["model"], ParallelConfig(**values["parallel_config"])
    stages, tensor = parallel.pipeline_stage, parallel.model_parallel
    for key in ("num_hidden_layers", "vocab_size", "intermediate_size"):
        yield "model", key, model[key] + 1
    if model["model_type"] == "llama":
        yield "model", "tie_word_embeddings", True
        for number in (1, 2):
            yield "model", "num_key_value_heads", number
    yield "data", "seq_length", values["data"]["seq_length"] + 1
    yield "data", "seq_length", model["max_position_embeddings"] + tensor
    for key in ("global_batch_size", "gradient_accumulation_steps"):
        yield "training", key, values["training"][key] + 1
    for number in (1, stages - 1, stages + 1):
        yield "parallel_config", "micro_batch_num", max(number, 1)
    for key in ("data_parallel", "model_parallel", "pipeline_stage"):
        for number in (2, 3, 4, 8, 16):
            yield "parallel_config", key, number
    for key in ("pp_interleave_num", "context_parallel", "expert_parallel"):
        yield "parallel_config", key, 2
    for row in (1, [1] * stages, [1] + [0] * stages, [-9] + [9] * (stages - 1)):
        yield "parallel_config", "offset", row
    for key in ("use_seq_parallel", "enable_parallel_optimizer"):
        yield "parallel_config", key, True
    yield "parallel_config", "parallel_optimizer_config", {"parallel_optimizer_threshold": 1}
    for key in ("recompute", "select_recompute"):
        for counts in ([9] * stages, [1] * (stages + 1)):
            yield "recompute_config", key, counts


@st.composite
def broken_runs(draw: Any) -> tuple[dict[str, Any], tuple[str, str, Any]]:
    """A configuration of which one value has been changed so that `msllm check` refuses it, and the change."""
    values = draw(runs())
    refused = [change for change in changes(values) if faults(changed(values, change))]
    keys = sorted({(section, key) for section, key, _ in refused})
    place = draw(st.sampled_from(keys))
    change = draw(st.sampled_from([change for change in refused if change[:2] == place]))
    return changed(values, change), change


def changed(values: dict[str, Any], change: tuple[str, str, Any]) -> dict[str, Any]:
    section, key, value = change
    result = copy.deepcopy(values)
    result[section][key] = value
    return result


def faults(values: dict[str, Any]) -> list[str]:
    return [fault.message for fault in cross_faults(sections_of(values))]


class Compiler:
    """The server, and what it has said."""

    def __init__(self, folder: Path):
        self.folder, self.asked = folder, 0
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("compile_server.py"))],
            cwd=folder,
            env=simulated_environment(0, 1, level=0),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def problems(self, values: dict[str, Any]) -> list[str]:
        """What goes wrong on the first rank or on the last, which is of another stage where there are any."""
        parallel = ParallelConfig(**values["parallel_config"])
        size = parallel.device_num
        for rank in sorted({0, size - 1}) if parallel.pipeline_stage > 1 else [0]:
            self.asked += 1
            config = self.folder / f"{self.asked}.yaml"
            config.write_text(dump_yaml(values))
            request = {"config": str(config), "rank": rank, "size": size, "log": str(config.with_suffix(".log"))}
            assert self.process.stdin is not None and self.process.stdout is not None
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            while not (line := self.process.stdout.readline()).startswith("{"):
                assert line, "the server ended"
            answer = json.loads(line)
            if answer["error"] or answer["slice_problems"]:
                return [answer["error"], *answer["slice_problems"]]
        return []


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiler]:
    found = Compiler(tmp_path_factory.mktemp("compiler"))
    yield found
    assert found.process.stdin is not None
    found.process.stdin.close()
    found.process.wait()


MANY = pytest.mark.extended


@pytest.mark.parametrize("number", [2, pytest.param(40, marks=MANY)])
def test_what_check_accepts_compiles(number: int, compiler: Compiler) -> None:
    @settings(max_examples=number, **ONCE)
    @given(runs())
    def holds(values: dict[str, Any]) -> None:
        assert faults(values) == []
        note(dump_yaml(values))
        assert compiler.problems(values) == []

    holds()


@pytest.mark.parametrize("number", [3, pytest.param(60, marks=MANY)])
def test_what_check_refuses_does_not_compile_or_is_known_to_mean_something_else(
    number: int, compiler: Compiler
) -> None:
    @settings(max_examples=number, **ONCE)
    @given(broken_runs())
    def holds(run: tuple[dict[str, Any], tuple[str, str, Any]]) -> None:
        values, change = run
        found = faults(values)
        note(f"{change}\n{found}\n{dump_yaml(values)}")
        silent = all(any(re.search(pattern, message) for pattern in SILENT) for message in found)
        assert silent or compiler.problems(values) != []

    holds()


def test_what_the_compiler_takes_silently_is_documented() -> None:
    text = (ROOT / "docs" / "strategies.md").read_text()
    assert [told for told in SILENT.values() if told not in text] == []
