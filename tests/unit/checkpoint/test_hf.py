"""Folders of Hugging Face: read, checked, written. tests/golden/hf_* were written by transformers itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from msllm.checkpoint.hf import check_tensors, export_folder, folded, open_folder, read_weights
from msllm.checkpoint.safetensors_file import read_header, write_file
from msllm.errors import InputError, RunError
from msllm.registry import config_from_hf, config_to_hf, weight_map

GOLDEN = Path(__file__).parents[2] / "golden"
LAST_SHARD = "model-00002-of-00002.safetensors"
LAYER_1_NORM = "model.layers.1.input_layernorm.weight"


@pytest.fixture
def llama(tmp_path) -> Path:
    """Two shards in bfloat16."""
    return Path(shutil.copytree(GOLDEN / "hf_llama", tmp_path / "hf_llama"))


@pytest.fixture
def gpt2(tmp_path) -> Path:
    """One file in float16."""
    return Path(shutil.copytree(GOLDEN / "hf_gpt2", tmp_path / "hf_gpt2"))


def table_of(folder: Path):
    return weight_map(config_from_hf(json.loads((folder / "config.json").read_text()))[0])


def load(folder: Path) -> tuple[dict[str, np.ndarray], list[str]]:
    opened, table = open_folder(folder), table_of(folder)
    notes = check_tensors(opened, table)
    return dict(read_weights(opened, table)), notes


def problems_of(folder: Path) -> list[str]:
    with pytest.raises(InputError) as error:
        load(folder)
    return [str(problem) for problem in error.value.problems]


def stored_bytes(folder: Path) -> dict[str, bytes]:
    """The bytes of each tensor as they lie on the disk."""
    found = {}
    for file in folder.glob("*.safetensors"):
        content = file.read_bytes()
        for name, tensor in read_header(file).items():
            found[name] = content[tensor.start : tensor.start + tensor.nbytes]
    return found


def rewrite(folder: Path, change) -> None:
    """Write the folder's weights as one float32 file after `change(name -> array)`."""
    arrays = {}
    for file in sorted(folder.glob("*.safetensors")):
        arrays |= {name: tensor.read() for name, tensor in read_header(file).items()}
        file.unlink()
    change(arrays)
    (folder / "model.safetensors.index.json").unlink(missing_ok=True)
    shapes = {name: array.shape for name, array in arrays.items()}
    write_file(folder / "model.safetensors", arrays.items(), shapes, "float32")


def edit_config(folder: Path, **fields) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


@pytest.mark.parametrize(("name", "dtype"), [("hf_llama", "bfloat16"), ("hf_gpt2", "float16")])
@pytest.mark.parametrize("shard", [10_000, 10**9])
def test_import_and_export_give_the_same_bits_back(tmp_path, name, dtype, shard):
    weights, notes = load(GOLDEN / name)
    assert notes == []
    config, _ = config_from_hf(json.loads((GOLDEN / name / "config.json").read_text()))
    export_folder(tmp_path / "out", config_to_hf(config), weight_map(config), weights, dtype, shard)
    assert stored_bytes(tmp_path / "out") == stored_bytes(GOLDEN / name)
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert ("model.safetensors" in files) == (shard == 10**9)
    again, _ = load(tmp_path / "out")
    assert all(np.array_equal(again[key], weights[key]) for key in weights)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["torch_dtype"] == dtype


def test_float32_weights_come_back_bit_for_bit_in_float32(tmp_path, gpt2):
    table = table_of(gpt2)
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in table.shapes().items()}
    export_folder(tmp_path / "out", json.loads((gpt2 / "config.json").read_text()), table, weights)
    back, _ = load(tmp_path / "out")
    assert all(back[name].tobytes() == weights[name].tobytes() for name in weights)


def test_the_index_of_an_export_places_every_tensor_and_no_shard_is_larger_than_asked(tmp_path, llama):
    weights, _ = load(llama)
    hf = json.loads((llama / "config.json").read_text())
    export_folder(tmp_path / "out", hf, table_of(llama), weights, "float32", 20_000)
    index = json.loads((tmp_path / "out" / "model.safetensors.index.json").read_text())
    sizes: dict[str, int] = {}
    for file in (tmp_path / "out").glob("*.safetensors"):
        for name, tensor in read_header(file).items():
            assert index["weight_map"].pop(name) == file.name
            sizes[file.name] = sizes.get(file.name, 0) + tensor.nbytes
    assert index["weight_map"] == {}
    assert len(sizes) > 3
    assert max(sizes.values()) <= 20_000
    assert index["metadata"]["total_size"] == sum(sizes.values())


def test_missing_unexpected_and_wrong_shapes_are_reported_at_once_with_layers_folded(llama):
    def change(arrays):
        for layer in range(2):
            del arrays[f"model.layers.{layer}.mlp.up_proj.weight"]
            arrays[f"model.layers.{layer}.self_attn.q_proj.bias"] = np.zeros(32, np.float32)
        arrays["model.embed_tokens.weight"] = np.zeros((60, 32), np.float32)

    rewrite(llama, change)
    assert [problem.removeprefix(f"{llama}: ") for problem in problems_of(llama)] == [
        "model.layers.[0-1].mlp.up_proj.weight is missing",
        "model.layers.[0-1].self_attn.q_proj.bias is unexpected: the model has no such weight",
        "model.embed_tokens.weight has shape (60, 32), config.json asks for (64, 32)",
    ]


def test_a_layer_more_than_config_json_says_is_unexpected(llama):
    edit_config(llama, num_hidden_layers=1)
    assert any("model.layers.1.mlp.up_proj.weight is unexpected" in problem for problem in problems_of(llama))


def test_rotary_buffers_are_left_out_and_said_so(llama):
    def change(arrays):
        for layer in range(2):
            arrays[f"model.layers.{layer}.self_attn.rotary_emb.inv_freq"] = np.ones(2, np.float32)

    rewrite(llama, change)
    weights, notes = load(llama)
    assert notes == ["model.layers.[0-1].self_attn.rotary_emb.inv_freq: not a weight, computed from the configuration"]
    assert weights.keys() == table_of(llama).shapes().keys()


def test_openais_gpt2_without_prefix_and_with_masks_and_a_second_head_is_read(gpt2):
    expected, _ = load(gpt2)

    def change(arrays):
        for name in list(arrays):
            arrays[name.removeprefix("transformer.")] = arrays.pop(name)
        for layer in range(2):
            arrays[f"h.{layer}.attn.bias"] = np.ones((1, 1, 32, 32), np.float32)
        arrays["lm_head.weight"] = arrays["wte.weight"]

    rewrite(gpt2, change)
    weights, notes = load(gpt2)
    assert notes == [
        "h.[0-1].attn.bias: not a weight, computed from the configuration",
        "lm_head.weight: the same as transformer.wte.weight, read once",
    ]
    assert all(np.array_equal(weights[name], expected[name]) for name in expected)


def test_a_tied_head_may_be_stored_or_left_out_but_not_differ(llama):
    edit_config(llama, tie_word_embeddings=True)
    (problem,) = problems_of(llama)
    assert "lm_head.weight differs from model.embed_tokens.weight, although the two are tied" in problem

    rewrite(llama, lambda arrays: arrays.update({"lm_head.weight": arrays["model.embed_tokens.weight"]}))
    weights, notes = load(llama)
    assert "lm_head.weight" not in weights
    assert notes == ["lm_head.weight: the same as model.embed_tokens.weight, read once"]

    rewrite(llama, lambda arrays: arrays.pop("lm_head.weight"))
    assert load(llama)[1] == []


def test_an_untied_head_that_is_left_out_is_missing(llama):
    rewrite(llama, lambda arrays: arrays.pop("lm_head.weight"))
    (problem,) = problems_of(llama)
    assert "lm_head.weight is missing" in problem


def test_not_a_number_in_a_weight_is_found(llama):
    tensor = open_folder(llama).tensors[LAYER_1_NORM]
    with open(tensor.file, "r+b") as file:
        file.seek(tensor.start)
        file.write(b"\xc0\x7f")
    (problem,) = problems_of(llama)
    assert f"{LAYER_1_NORM} holds NaN or infinity" in problem


def test_every_damaged_or_missing_file_is_reported_at_once(llama):
    (llama / "config.json").write_text('{"a": 1,\n "b"}')
    first = llama / "model-00001-of-00002.safetensors"
    first.write_bytes(first.read_bytes()[:-1])
    (llama / LAST_SHARD).unlink()
    problems = problems_of_open(llama)
    assert len(problems) == 3
    assert f"{llama / 'config.json'}:2: is not JSON" in problems[0]
    assert f"{LAST_SHARD}: does not exist, but model.safetensors.index.json places" in problems[1]
    assert f"{first}: is cut" in problems[2]


def problems_of_open(folder: Path) -> list[str]:
    with pytest.raises(InputError) as error:
        open_folder(folder)
    return [str(problem) for problem in error.value.problems]


def test_a_shard_of_another_checkpoint_is_noticed(llama):
    shutil.copy(llama / "model-00001-of-00002.safetensors", llama / LAST_SHARD)
    text = "\n".join(problems_of_open(llama))
    assert f"lacks {LAYER_1_NORM}, which model.safetensors.index.json places here" in text
    assert "holds model.embed_tokens.weight, which another shard holds as well" in text


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("[]", "must hold a JSON object"),
        ("{}", "has no weight_map"),
        ('{"weight_map": {"a": 1}}', "has no weight_map"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "outside this folder"),
    ],
)
def test_a_broken_index_is_refused(llama, index, message):
    (llama / "model.safetensors.index.json").write_text(index)
    (problem,) = problems_of_open(llama)
    assert message in problem


def test_a_folder_without_safetensors_says_what_to_do(llama, tmp_path):
    (llama / "model.safetensors.index.json").unlink()
    assert "the index tells which shards" in problems_of_open(llama)[0]
    for file in llama.glob("*.safetensors"):
        file.unlink()
    assert "holds neither model.safetensors nor" in problems_of_open(llama)[0]
    (llama / "pytorch_model.bin").write_bytes(b"")
    assert "save_pretrained" in problems_of_open(llama)[0]
    assert "does not exist" in problems_of_open(tmp_path / "nothing")[0]
    assert "is a file; give the folder" in problems_of_open(llama / "config.json")[0]


def test_an_export_is_checked_before_anything_is_written(llama, tmp_path):
    weights, _ = load(llama)
    del weights["model.norm.weight"]
    weights["model.layers.0.other"] = np.zeros(3, np.float32)
    weights["lm_head.weight"] = np.zeros((3, 32), np.float32)
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError) as error:
        export_folder(tmp_path / "out", {}, table_of(llama), weights, "int8")
    assert [str(problem) for problem in error.value.problems] == [
        f"{tmp_path / 'out'} exists; give a folder that does not",
        "dtype (int8) must be one of float32, float16, bfloat16",
        "model.norm.weight is missing",
        "model.layers.0.other is not a weight of this model",
        "lm_head.weight has shape (3, 32), the configuration asks for (64, 32)",
    ]


def test_a_value_that_the_dtype_cannot_hold_stops_the_export_and_leaves_nothing(llama, tmp_path):
    weights, _ = load(llama)
    weights["model.norm.weight"][0] = 70000.0
    hf = json.loads((llama / "config.json").read_text())
    before = sorted(tmp_path.iterdir())
    with pytest.raises(InputError, match=r"model.norm.weight reaches 7e\+04, more than float16 can hold"):
        export_folder(tmp_path / "out", hf, table_of(llama), weights, "float16")
    assert sorted(tmp_path.iterdir()) == before


def test_a_place_that_cannot_be_written_ends_the_run_without_a_trace(llama, tmp_path):
    weights, _ = load(llama)
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="cannot be written"):
        export_folder(tmp_path / "file" / "out", {}, table_of(llama), weights)


def test_names_are_folded_over_layers_in_their_order():
    names = ["a", "h.0.x", "h.0.y", "h.1.x", "h.3.x", "h.10.x"]
    assert folded(names) == ["a", "h.[0-1,3,10].x", "h.0.y"]
