"""Measure what MindSpore's memory planner asks for, for the test that holds the estimate to it.

    python tests/golden/make_memory.py [NAME ...]

Adds what tests/golden/memory.json lacks, or measures the named configurations again: about half a minute each. Made with
MindSpore 2.9.0 on simulated Ascend; no number is a device's.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from msllm.config.load import load_run_config
from msllm.config.sections import RunConfig
from msllm.files import write_atomic
from msllm.hardware.cluster import usual_cluster
from msllm.registry import MODEL_CONFIGS
from msllm.rehearsal.compilation import compile_ranks

FILE = Path(__file__).with_name("memory.json")
ROOT = Path(__file__).parents[2]
LLAMA = {
    "model.hidden_size": 1024,
    "model.intermediate_size": 2816,
    "model.num_attention_heads": 16,
    "model.num_key_value_heads": 8,
    "model.vocab_size": 8192,
    "model.max_position_embeddings": 2048,
    "model.num_hidden_layers": 8,
    "data.seq_length": 2048,
    "training.global_batch_size": 2,
}
GPT2 = {
    "model.hidden_size": 1024,
    "model.intermediate_size": 4096,
    "model.num_attention_heads": 16,
    "model.vocab_size": 8192,
    "model.max_position_embeddings": 1024,
    "model.num_hidden_layers": 8,
    "data.seq_length": 1024,
    "training.global_batch_size": 4,
    "training.amp_level": "O2",
    "training.compute_dtype": "bfloat16",
    "training.device_target": "Ascend",
}
DP, TP, PP = (f"parallel_config.{name}" for name in ("data_parallel", "model_parallel", "pipeline_stage"))
MICRO, ZERO, SP = (
    f"parallel_config.{name}" for name in ("micro_batch_num", "enable_parallel_optimizer", "use_seq_parallel")
)
BATCH, ACCUMULATION = "training.global_batch_size", "training.gradient_accumulation_steps"
FULL, SELECTIVE = "recompute_config.recompute", "recompute_config.select_recompute"
LAYERS, VOCAB, SEQ, POSITIONS = (
    "model.num_hidden_layers",
    "model.vocab_size",
    "data.seq_length",
    "model.max_position_embeddings",
)
O0 = {"training.amp_level": "O0", "training.compute_dtype": "float32"}
THREE = {DP: 2, TP: 2, PP: 2, MICRO: 4, BATCH: 8, ZERO: True}
WIDE = {"model.hidden_size": 4096, "model.intermediate_size": 11008, "model.num_attention_heads": 32}

SEEN: dict[str, dict[str, Any]] = {
    "l4": {LAYERS: 4},
    "l8": {},
    "l4_o0": {LAYERS: 4, **O0},
    "l8_o0": O0,
    "l4_dp2": {LAYERS: 4, DP: 2},
    "l8_dp2": {DP: 2},
    "tp2": {TP: 2},
    "tp4": {TP: 4},
    "tp8": {TP: 8},
    "tp2_sp": {TP: 2, SP: True},
    "tp8_sp": {TP: 8, SP: True},
    "dp2_zero": {DP: 2, ZERO: True, BATCH: 4},
    "dp8_zero": {DP: 8, ZERO: True, BATCH: 16},
    "dp2_tp4_zero_sp": {DP: 2, TP: 4, ZERO: True, SP: True, BATCH: 4},
    "tp2_rec": {TP: 2, FULL: True},
    "dp2_rec": {DP: 2, FULL: True, BATCH: 4},
    "tp2_sel": {TP: 2, SELECTIVE: True},
    "tp2_sp_rec": {TP: 2, SP: True, FULL: True},
    "pp2_m2": {PP: 2, MICRO: 2},
    "pp2_m4": {PP: 2, MICRO: 4, BATCH: 4},
    "pp2_tp2_m4": {PP: 2, TP: 2, MICRO: 4, BATCH: 4},
    "pp4_m8": {PP: 4, MICRO: 8, BATCH: 8},
    "dp2_tp2_pp2_zero": THREE,
    "dp2_tp2_pp2_zero_rec": {**THREE, FULL: True},
    "pp2_m8_rec": {PP: 2, MICRO: 8, BATCH: 8, FULL: True},
    "acc2": {DP: 2, ACCUMULATION: 2, BATCH: 8},
    "acc4_zero": {DP: 2, ACCUMULATION: 4, BATCH: 8, ZERO: True},
    "big_vocab_tp2": {TP: 2, LAYERS: 4, VOCAB: 65536},
    "long_tp2": {TP: 2, LAYERS: 4, SEQ: 8192, POSITIONS: 8192, BATCH: 1},
}
"""Llama configurations that the estimate was derived from."""
UNSEEN: dict[str, dict[str, Any]] = {
    "wide_tp4": {**WIDE, "model.num_key_value_heads": 32, VOCAB: 32000, LAYERS: 2, TP: 4, BATCH: 1},
    "wide_tp8_sp_pp2": {
        **WIDE,
        "model.num_key_value_heads": 8,
        VOCAB: 32000,
        LAYERS: 4,
        TP: 8,
        SP: True,
        PP: 2,
        MICRO: 4,
        BATCH: 4,
    },
    "wide_dp8_zero_rec": {
        **WIDE,
        "model.num_key_value_heads": 32,
        VOCAB: 32000,
        LAYERS: 2,
        DP: 8,
        ZERO: True,
        FULL: True,
        BATCH: 8,
    },
    "few_kv_heads": {"model.num_key_value_heads": 2, LAYERS: 4, TP: 2, BATCH: 4},
    "tied": {"model.tie_word_embeddings": True, LAYERS: 4, DP: 2, BATCH: 4},
    "o1": {"training.amp_level": "O1", LAYERS: 4, TP: 2},
    "sp_zero_acc": {DP: 2, TP: 2, SP: True, ZERO: True, ACCUMULATION: 2, BATCH: 8, LAYERS: 4},
    "pp2_sel": {PP: 2, MICRO: 4, BATCH: 4, SELECTIVE: True},
}
"""Llama configurations that it was not."""
UNSEEN_GPT2: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt2_tp2_sp": {TP: 2, SP: True},
    "gpt2_dp2_zero_rec": {DP: 2, ZERO: True, FULL: True},
}


def configuration(settings: dict[str, Any]) -> RunConfig:
    """The run of an entry's settings."""
    model = "gpt2/configs/gpt2_tiny" if "gpt2" in settings.get("base", "") else "llama/configs/llama2_7b"
    sets = [f"{key}={json.dumps(value)}" for key, value in settings.items() if key != "base"]
    return load_run_config([ROOT / f"models/{model}.yaml"], None, sets, MODEL_CONFIGS).config


def settings_of(name: str) -> dict[str, Any]:
    """All that an entry of that name sets."""
    if name in UNSEEN_GPT2:
        return {"base": "gpt2", **GPT2, **UNSEEN_GPT2[name]}
    return {"base": "llama", **LLAMA, **(SEEN.get(name) or UNSEEN.get(name) or {})}


def measure(name: str) -> dict[str, Any]:
    """The planned peak of the first rank of each stage."""
    settings = settings_of(name)
    config = configuration(settings)
    parallel = config.parallel_config
    ranks = [stage * parallel.device_num // parallel.pipeline_stage for stage in range(parallel.pipeline_stage)]
    with tempfile.TemporaryDirectory() as folder:
        reports = compile_ranks(config, ranks, usual_cluster("910B", parallel.device_num), Path(folder), memory=True)
    peaks = {str(report["stage"]): report["memory"]["peak_bytes"] for report in reports}
    return {"seen": name in SEEN, "settings": settings, "peak_bytes": peaks}


def main(names: list[str]) -> None:
    """Measure, and write after each."""
    entries = json.loads(FILE.read_text()) if FILE.exists() else {}
    for name in names or [*SEEN, *UNSEEN, *UNSEEN_GPT2]:
        if names or name not in entries:
            entries[name] = measure(name)
            write_atomic(FILE, json.dumps(entries, indent=1) + "\n")
            print(name, entries[name]["peak_bytes"], flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
