"""`msllm weights`: what a user types and what comes back."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from msllm.checkpoint import state as state_module
from msllm.checkpoint.hf import open_folder
from msllm.checkpoint.state import TrainingState, save_state
from msllm.cli import app
from msllm.commands.weights import parse_size, read_pretrained
from msllm.config.load import load_run_config
from msllm.data.tokenizer import load_tokenizer
from msllm.errors import InputError
from msllm.files import sha256_of
from msllm.registry import MODEL_CONFIGS

ROOT = Path(__file__).parents[3]
HF_LLAMA = ROOT / "tests" / "golden" / "hf_llama"


def run(*arguments) -> str:
    result = CliRunner().invoke(app, ["weights", *map(str, arguments)])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def checkpoint(tmp_path, tokenizer_file) -> Path:
    """A training state whose weights are those of HF_LLAMA."""
    model, weights, _ = read_pretrained(HF_LLAMA)
    section = tmp_path / "model.json"
    section.write_text(json.dumps({"model": model.model_dump(mode="json")}))
    rest = tmp_path / "rest.yaml"
    rest.write_text("data: {train_dataset: x, seq_length: 16}\ntraining: {train_steps: 1, global_batch_size: 2}\n")
    config = load_run_config([section, rest], None, [], MODEL_CONFIGS).config
    data = {"tokenizer": sha256_of(tokenizer_file), "eod_id": 2}
    state = TrainingState(weights, {"global_step": np.zeros((), np.int32)}, {"step": 1, "dataset": data})
    return save_state(tmp_path / "run" / "checkpoints", 1, state, config)


def test_check_prints_a_model_section_that_loads(tmp_path):
    (tmp_path / "model.yaml").write_text(run("check", HF_LLAMA))
    (tmp_path / "rest.yaml").write_text(
        "data: {train_dataset: x, seq_length: 16}\ntraining: {train_steps: 1, global_batch_size: 2}\n"
    )
    config = load_run_config([tmp_path / "model.yaml", tmp_path / "rest.yaml"], None, [], MODEL_CONFIGS).config
    assert config.model == read_pretrained(HF_LLAMA)[0]


def test_check_as_json_counts_parameters_and_tells_what_is_not_used(tmp_path):
    folder = Path(shutil.copytree(HF_LLAMA, tmp_path / "hf"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"my_field": 3}))
    answer = json.loads(run("check", folder, "--json"))
    assert answer["parameters"] == 18592
    assert answer["notes"] == ["config.json: my_field has no counterpart here and is not used"]


def test_a_checkpoint_is_exported_with_the_bits_that_came_in(checkpoint, tmp_path):
    answer = json.loads(
        run(
            "export",
            "-k",
            checkpoint,
            "-o",
            tmp_path / "hf",
            "--dtype",
            "bfloat16",
            "--max-shard-size",
            "20KB",
            "--json",
        )
    )
    assert "model.safetensors.index.json" in answer["files"]
    theirs, ours = open_folder(HF_LLAMA).tensors, open_folder(tmp_path / "hf").tensors
    assert theirs.keys() == ours.keys()
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype
        assert np.array_equal(ours[name].read(), tensor.read())


def test_the_end_of_text_is_the_datas_or_the_one_given(checkpoint, tmp_path):
    for number, (options, ids) in enumerate([([], (None, 2)), (["--eos-token-id", 7, "--bos-token-id", 1], (1, 7))]):
        assert "wrote" in run("export", "-k", checkpoint, "-o", tmp_path / f"hf{number}", *options)
        config = json.loads((tmp_path / f"hf{number}" / "config.json").read_text())
        assert (config["bos_token_id"], config["eos_token_id"]) == ids


def test_transformers_loads_the_exported_folder_with_its_tokenizer(checkpoint, tokenizer_file, tmp_path):
    import transformers

    folder = checkpoint.parents[1] / "tokenizer"
    folder.mkdir()
    shutil.copy(tokenizer_file, folder / "words.model")
    run("export", "-k", checkpoint.parents[1], "-o", tmp_path / "hf")
    config = transformers.AutoConfig.from_pretrained(str(tmp_path / "hf"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(tmp_path / "hf"))
    assert (config.model_type, config.eos_token_id, tokenizer.eos_token_id) == ("llama", 2, 2)
    assert tokenizer.encode("the graph") == load_tokenizer(tokenizer_file).encode("the graph")


def test_without_a_tokenizer_the_weights_are_exported_and_a_note_says_so(checkpoint, tokenizer_file, tmp_path):
    assert json.loads(run("export", "-k", checkpoint, "-o", tmp_path / "hf", "--json"))["files"] == [
        "config.json",
        "model.safetensors",
    ]
    files = json.loads(run("export", "-k", checkpoint, "-o", tmp_path / "b", "--tokenizer", tokenizer_file, "--json"))
    assert files["files"] == ["config.json", "model.safetensors", "tokenizer.model", "tokenizer_config.json"]


def test_export_reads_each_byte_of_a_checkpoint_once_to_check_it(checkpoint, tmp_path, monkeypatch):
    hashed = []
    monkeypatch.setattr(state_module, "sha256_of", lambda file: hashed.append(file.name) or sha256_of(file))
    run("export", "-k", checkpoint.parents[1], "-o", tmp_path / "hf")
    assert hashed.count("model.safetensors") == 1


def test_a_damaged_checkpoint_is_not_exported(checkpoint, tmp_path):
    file = checkpoint / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match="has changed since it was written"):
        run("export", "-k", checkpoint, "-o", tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
    with pytest.raises(InputError, match="no such folder; give a run"):
        run("export", "-k", tmp_path / "nothing", "-o", tmp_path / "hf")


def test_weights_of_another_network_than_the_runs_are_refused_field_by_field():
    config, *_ = read_pretrained(HF_LLAMA)
    same = config.model_copy(update={"max_position_embeddings": 4096, "initializer_range": 0.1})
    assert read_pretrained(HF_LLAMA, same)[0] == config
    other = config.model_copy(update={"rope_theta": 5e5, "num_hidden_layers": 4})
    with pytest.raises(InputError) as error:
        read_pretrained(HF_LLAMA, other)
    assert [problem.message for problem in error.value.problems] == [
        "num_hidden_layers is 2, the run's model section says 4",
        "rope_theta is 10000.0, the run's model section says 500000.0",
    ]


def test_sizes_are_read_as_people_write_them():
    assert [parse_size(text) for text in ("5GB", "500 mb", "7kb", "12")] == [5 * 10**9, 5 * 10**8, 7000, 12]
    for text in ("", "GB", "-1", "0", "1.5GB", "5 TB"):
        with pytest.raises(InputError, match="max-shard-size"):
            parse_size(text)
