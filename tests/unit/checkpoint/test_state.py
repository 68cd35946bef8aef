"""Training states: whole or absent, and no changed byte goes unnoticed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_runs

from msllm.checkpoint.state import (
    TrainingState,
    checkpoint_name,
    complete_checkpoints,
    damage_of,
    load_state,
    newest_good,
    prune,
    save_state,
    set_aside_after,
)
from msllm.config.sections import DataConfig, RunConfig, TrainingConfig
from msllm.errors import InputError, RunError
from msllm.files import sha256_of

FILES = ["COMPLETE", "config.yaml", "manifest.json", "model.safetensors", "optimizer.safetensors", "state.json"]
CONFIG = RunConfig(
    model=tiny_runs.llama_config(),
    data=DataConfig(train_dataset="data", seq_length=16),
    training=TrainingConfig(train_steps=10, global_batch_size=8),
)


def make_state(step: int) -> TrainingState:
    random = np.random.default_rng(step)
    model = {
        "matrix": random.normal(size=(3, 4)).astype(np.float32),
        "special": np.array([np.nan, np.inf, -np.inf, -0.0, 1e-45], np.float32),
        "half": random.normal(size=5).astype(np.float16),
    }
    optimizer = {"adam_step": np.array(float(step), np.float32), "global_step": np.array(step, np.int32)}
    return TrainingState(model, optimizer, {"step": step, "samples_seen": 8 * step, "note": "déjà vu"})


def save(root: Path, *steps: int) -> None:
    for step in steps:
        save_state(root, step, make_state(step), CONFIG)


def names(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir())


def assert_equal(left: TrainingState, right: TrainingState) -> None:
    assert left.state == right.state
    for ours, theirs in ((left.model, right.model), (left.optimizer, right.optimizer)):
        assert list(ours) == list(theirs) or set(ours) == set(theirs)
        for name in ours:
            assert (ours[name].dtype, ours[name].shape) == (theirs[name].dtype, theirs[name].shape)
            assert ours[name].tobytes() == theirs[name].tobytes()


def test_a_state_comes_back_bit_for_bit(tmp_path: Path):
    path = save_state(tmp_path, 7, make_state(7), CONFIG)
    assert path.name == "step_00000007" and names(path) == FILES
    assert_equal(load_state(path), make_state(7))


def test_arrays_that_do_not_lie_in_order_come_back_too(tmp_path: Path):
    state = TrainingState({"turned": np.arange(12, dtype=np.float32).reshape(3, 4).T}, {}, {"step": 1})
    loaded = load_state(save_state(tmp_path, 1, state, CONFIG))
    assert np.array_equal(loaded.model["turned"], state.model["turned"])


def test_the_same_state_gives_the_same_bytes(tmp_path: Path):
    save(tmp_path / "a", 3), save(tmp_path / "b", 3)
    for name in FILES:
        assert sha256_of(tmp_path / "a" / "step_00000003" / name) == sha256_of(tmp_path / "b" / "step_00000003" / name)


def test_the_manifest_says_what_is_in_the_files(tmp_path: Path):
    path = save_state(tmp_path, 7, make_state(7), CONFIG)
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["tensors"]["model"]["matrix"] == ["float32", [3, 4]]
    assert manifest["tensors"]["optimizer"]["global_step"] == ["int32", []]
    assert manifest["files"]["model.safetensors"]["sha256"] == sha256_of(path / "model.safetensors")


@pytest.mark.parametrize("name", FILES)
def test_a_flipped_bit_in_any_byte_of_any_file_is_noticed(tmp_path: Path, name: str):
    path = save_state(tmp_path, 7, make_state(7), CONFIG)
    content = (path / name).read_bytes()
    unnoticed = []
    for offset in range(len(content)):
        changed = bytearray(content)
        changed[offset] ^= 1 << (offset % 8)
        (path / name).write_bytes(changed)
        if not damage_of(path):
            unnoticed.append(offset)
    assert unnoticed == []
    with pytest.raises(InputError, match=str(path)):
        load_state(path)


@pytest.mark.parametrize("name", FILES)
def test_a_cut_longer_or_missing_file_is_noticed(tmp_path: Path, name: str):
    path = save_state(tmp_path, 7, make_state(7), CONFIG)
    content = (path / name).read_bytes()
    for other in (b"", content[:1], content[: len(content) // 2], content[:-1], content + b"\n", content + content):
        (path / name).write_bytes(other)
        assert damage_of(path), f"{len(other)} bytes of {len(content)}"
    (path / name).unlink()
    assert damage_of(path)
    with pytest.raises(InputError, match="COMPLETE|manifest|missing"):
        load_state(path)


def test_every_damaged_file_is_named(tmp_path: Path):
    path = save_state(tmp_path, 7, make_state(7), CONFIG)
    (path / "state.json").unlink()
    with open(path / "model.safetensors", "ab") as file:
        file.write(b"x")
    with pytest.raises(InputError) as error:
        load_state(path)
    found = [str(problem) for problem in error.value.problems]
    assert len(found) == 2
    assert any("model.safetensors has" in text for text in found) and any(
        "state.json is missing" in text for text in found
    )


def test_a_state_of_another_format_version_is_refused_with_both_numbers(tmp_path: Path):
    path = save_state(tmp_path, 7, make_state(7), CONFIG)
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"version": 2}))
    (path / "COMPLETE").write_text(sha256_of(path / "manifest.json") + "\n")
    with pytest.raises(InputError, match="version 2, this msllm reads 1"):
        load_state(path)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(InputError, match="no such checkpoint folder"):
        load_state(tmp_path / "step_00000001")


def test_states_are_ordered_by_step_and_unfinished_ones_are_none(tmp_path: Path):
    save(tmp_path, 9, 10, 100_000_000)
    (tmp_path / "step_00000011").mkdir()
    (tmp_path / "step_x").mkdir()
    found = [path.name for path in complete_checkpoints(tmp_path)]
    assert found == ["step_00000009", "step_00000010", "step_100000000"]


def test_the_newest_undamaged_state_is_chosen_and_damage_is_told(tmp_path: Path):
    save(tmp_path, 1, 2, 3)
    (tmp_path / "step_00000003" / "model.safetensors").write_bytes(b"")
    path, damaged = newest_good(tmp_path)
    assert path == tmp_path / "step_00000002"
    assert "step_00000003: model.safetensors has 0 bytes" in str(damaged[0])
    assert newest_good(tmp_path / "nothing") == (None, [])


@pytest.mark.parametrize(
    ("keep_last", "keep_every", "kept"),
    [(1, None, [10]), (3, None, [8, 9, 10]), (100, None, range(1, 11)), (2, 4, [4, 8, 9, 10]), (1, 5, [5, 10])],
)
def test_prune_keeps_the_last_and_every_mth(tmp_path: Path, keep_last: int, keep_every: int | None, kept):
    save(tmp_path, *range(1, 11))
    removed = prune(tmp_path, keep_last, keep_every)
    assert names(tmp_path) == [checkpoint_name(step) for step in kept]
    assert len(removed) == 10 - len(list(kept))


def test_a_run_that_goes_on_finds_its_place_empty_and_damaged_states_set_aside(tmp_path: Path):
    save(tmp_path, 1, 2, 3)
    (tmp_path / "step_00000004").mkdir()
    (tmp_path / ".step_00000005.tmp-999999999").mkdir()
    set_aside_after(tmp_path, 1)
    assert names(tmp_path) == ["damaged_step_00000002", "damaged_step_00000003", "step_00000001"]
    save(tmp_path, 2)
    set_aside_after(tmp_path, 1)
    assert names(tmp_path) == ["damaged_step_00000002", "damaged_step_00000003", "step_00000001"]


def crash_everywhere(root: Path) -> list[int]:
    """Save step 2 and prune step 1, killed before the 1st, 2nd, ... file operation, each time in a process of its own.

    Leaves the state of each attempt in `root/<number>` and returns the exit codes: 9, 9, ..., 0.
    """
    codes = []
    while not codes or codes[-1] == 9:
        folder = root / str(len(codes))
        save(folder, 1)
        child = os.fork()
        if child == 0:
            left = len(codes)

            def watch(event: str, arguments: tuple) -> None:
                nonlocal left
                if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir") and str(root) in str(arguments):
                    left -= 1
                    if left < 0:
                        os._exit(9)

            sys.addaudithook(watch)
            save(folder, 2)
            prune(folder, 1, None)
            os._exit(0)
        codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return codes


@pytest.mark.fault
def test_a_kill_before_any_file_operation_of_a_save_leaves_a_usable_state(tmp_path: Path):
    code = f"import test_state, pathlib; print(test_state.crash_everywhere(pathlib.Path({str(tmp_path)!r})))"
    environment = tiny_runs.environment()
    environment["PYTHONPATH"] += f":{Path(__file__).parent}"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    codes = json.loads(done.stdout)
    assert len(codes) > 20 and codes == [9] * (len(codes) - 1) + [0]
    seen = set()
    for folder in sorted(tmp_path.iterdir()):
        path, damaged = newest_good(folder)
        assert damaged == [] and path is not None
        step = load_state(path).state["step"]
        seen.add(step)
        assert_equal(load_state(path), make_state(step))
        set_aside_after(folder, step)
        save(folder, step + 1)
        assert_equal(load_state(folder / checkpoint_name(step + 1)), make_state(step + 1))
        assert not [name for name in names(folder) if not name.startswith("step_")]
    assert seen == {1, 2}


@pytest.mark.parametrize("point", ["save_file", "write_resolved", "os.rename", "marker"])
def test_a_write_that_fails_leaves_nothing_behind_and_names_the_place(tmp_path: Path, monkeypatch, point: str):
    def fail(*args, **kwargs):
        raise OSError(28, "No space left on device")

    def fail_at_marker(path, content):
        return fail() if Path(path).name == "COMPLETE" else None

    save(tmp_path, 1)
    places = {
        "save_file": ("safetensors.numpy.save_file", fail),
        "write_resolved": ("msllm.checkpoint.state.write_resolved", fail),
        "os.rename": ("msllm.files.os.rename", fail),
        "marker": ("msllm.checkpoint.state.write_atomic", fail_at_marker),
    }
    with monkeypatch.context() as patch:
        patch.setattr(*places[point])
        with pytest.raises(RunError, match="step_00000002.*No space left on device"):
            save(tmp_path, 2)
    assert names(tmp_path) == ["step_00000001"]
    assert damage_of(tmp_path / "step_00000001") == []


def test_a_state_can_be_copied_elsewhere(tmp_path: Path):
    shutil.copytree(save_state(tmp_path, 7, make_state(7), CONFIG), tmp_path / "elsewhere")
    assert_equal(load_state(tmp_path / "elsewhere"), make_state(7))
