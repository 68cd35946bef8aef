"""States that ranks write together; the ranks are threads here, with MindSpore's layouts in tests/distributed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tiny_runs

from msllm.checkpoint.state import complete_checkpoints, damage_of, load_state
from msllm.checkpoint.together import Share, save_together
from msllm.config.sections import RunConfig
from msllm.errors import RunError
from msllm.parallel.held import Held
from msllm.parallel.world import World

RANKS = 4
FULL = {"w": np.arange(48, dtype=np.float32).reshape(8, 6), "norm": np.arange(6, dtype=np.float32), "n": np.array(7)}


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> RunConfig:
    folder = tmp_path_factory.mktemp("config")
    return tiny_runs.load(tiny_runs.write_config(folder / "run.yaml", folder / "data")).config


def share(rank: int) -> Share:
    """`w` is cut in two by rows, each half on two ranks; `norm` and `n` are whole everywhere."""
    rows = slice(4 * (rank % 2), 4 * (rank % 2) + 4)
    held = [
        Held("w", (8, 6), (rows, slice(0, 6)), writes=rank < 2),
        Held("norm", (6,), (slice(0, 6),), writes=rank == 0),
        Held("n", (), (), writes=rank == 0),
    ]
    values = {"model": {"w": FULL["w"][rows], "norm": FULL["norm"]}, "optimizer": {"n": FULL["n"]}}
    return Share(values, held, {name: array.shape for name, array in FULL.items()}, {"step": 3, "rank": rank})


def save(root: Path, config: RunConfig, change: Callable[[int, Share], Share] = lambda rank, share: share) -> list:
    """What `save_together` returns or raises on each rank."""
    barrier, flags = threading.Barrier(RANKS, timeout=30), [False] * RANKS

    def run(rank: int):
        def any_rank(flag: bool) -> bool:
            flags[rank] = flag
            barrier.wait()
            found = any(flags)
            barrier.wait()
            return found

        try:
            return save_together(root, 3, change(rank, share(rank)), config, World(rank, RANKS), any_rank)
        except RunError as error:
            return error

    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(run, range(RANKS)))


def test_the_parts_of_all_ranks_make_the_whole_state(tmp_path, config):
    saved = save(tmp_path, config)
    assert saved == [tmp_path / "step_00000003"] * RANKS
    assert sorted(file.name for file in saved[0].iterdir()) == [
        "COMPLETE",
        "config.yaml",
        "manifest.json",
        "rank_00000.safetensors",
        "rank_00001.safetensors",
        "state.json",
    ]
    state = load_state(saved[0])
    np.testing.assert_array_equal(state.model["w"], FULL["w"])
    np.testing.assert_array_equal(state.model["norm"], FULL["norm"])
    assert state.optimizer == {"n": 7} and state.state == {"step": 3, "rank": 0}
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000003"]


def test_a_state_of_the_same_step_is_replaced(tmp_path, config):
    save(tmp_path, config)
    again = save(tmp_path, config)
    assert damage_of(again[0]) == [] and complete_checkpoints(tmp_path) == [again[0]]


@pytest.mark.parametrize("broken", range(RANKS))
def test_where_one_rank_cannot_write_all_say_so_and_nothing_has_appeared(tmp_path, config, broken):
    class Full(dict):
        def items(self):
            raise OSError(28, "No space left on device")

    def fill(rank: int, whole: Share) -> Share:
        return Share(Full() if rank == broken else whole.values, whole.held, whole.full_shapes, whole.state)

    said = save(tmp_path, config, fill)
    assert "No space left on device" in str(said[broken]) and "make room" in str(said[broken])
    others = [str(error) for rank, error in enumerate(said) if rank != broken]
    assert all("another rank could not write its part" in text for text in others)
    assert list(tmp_path.iterdir()) == []


def test_a_tensor_that_no_rank_writes_is_named(tmp_path, config):
    def forget(rank: int, whole: Share) -> Share:
        return Share(whole.values, whole.held[:1], whole.full_shapes, whole.state)

    said = save(tmp_path, config, forget)
    assert "do not hold together what the model has: n, norm" in str(said[0])
    assert list(tmp_path.iterdir()) == []


def test_a_part_that_no_rank_writes_is_named(tmp_path, config):
    def lose_a_half(rank: int, whole: Share) -> Share:
        held = [Held(h.name, h.shape, h.place, h.writes and rank == 0) for h in whole.held]
        return Share(whole.values, held, whole.full_shapes, whole.state)

    assert "w (8, 6) lacks 24 elements that no rank has written" in str(save(tmp_path, config, lose_a_half)[0])
    assert list(tmp_path.iterdir()) == []


def test_ranks_that_see_another_disk_are_named(tmp_path, config, monkeypatch):
    real = Path.write_text

    def lost(self: Path, *arguments, **options):
        return 0 if self.name == "rank_00002.json" else real(self, *arguments, **options)

    monkeypatch.setattr(Path, "write_text", lost)
    said = save(tmp_path, config)
    assert "rank 2 wrote into another folder" in str(said[0]) and "same disk under --output" in str(said[0])
