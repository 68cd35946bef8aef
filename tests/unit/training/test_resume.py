"""A run that was stopped and taken up again is the run that was never stopped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tiny_runs
import yaml

from msllm.errors import InputError
from msllm.files import sha256_of
from msllm.training.resume import way_back

STEPS = 6
FLOAT16 = (
    "training.amp_level=O2",
    "training.compute_dtype=float16",
    "training.loss_scale={loss_scale_value: 1099511627776.0, scale_factor: 1024.0, scale_window: 2}",
)
"""Overflows in the first steps, then grows, and overflows again: value and counters matter at every step."""


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("resume")
    return tiny_runs.write_config(folder / "run.yaml", tiny_runs.write_data(folder / "data"), STEPS)


@pytest.fixture(scope="module")
def whole(config: Path) -> Path:
    """The run that was never stopped; it has a checkpoint of every step."""
    return tiny_runs.train(config, config.parent / "whole")


@pytest.fixture(scope="module")
def whole16(config: Path) -> Path:
    return tiny_runs.train(config, config.parent / "whole16", *FLOAT16)


def stopped_after(whole: Path, step: int, folder: Path) -> Path:
    """What a kill in the middle of step `step + 2` leaves of `whole`: records after the last checkpoint, one cut short."""
    shutil.copytree(whole, folder)
    for later in range(step + 1, STEPS + 1):
        shutil.rmtree(tiny_runs.checkpoint(folder, later))
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folder / "metrics.jsonl").write_text("".join(lines[: step + 1]) + lines[min(step + 1, STEPS - 1)][:20])
    return folder


def state_bytes(run: Path, step: int) -> list[bytes]:
    files = ("model.safetensors", "optimizer.safetensors", "state.json")
    return [(tiny_runs.checkpoint(run, step) / name).read_bytes() for name in files]


def assert_same_run(run: Path, whole: Path, first_saved: int) -> None:
    assert tiny_runs.losses(run) == tiny_runs.losses(whole)
    for step in range(first_saved, STEPS + 1):
        assert state_bytes(run, step) == state_bytes(whole, step), f"step {step}"


def test_two_runs_of_the_same_command_are_equal_bit_for_bit(config: Path, whole: Path):
    again = tiny_runs.train(config, config.parent / "again")
    assert_same_run(again, whole, first_saved=1)


def test_a_stopped_run_goes_on_as_if_it_had_not_stopped(config: Path, whole: Path, tmp_path: Path):
    run = stopped_after(whole, 1, tmp_path / "run")
    tiny_runs.train(config, run, resume="auto")
    assert_same_run(run, whole, first_saved=1)


def test_the_loss_scale_goes_on_too(config: Path, whole16: Path, tmp_path: Path):
    scales = [line["loss_scale"] for line in tiny_runs.metrics(whole16)]
    overflows = [line["overflow"] for line in tiny_runs.metrics(whole16)]
    assert overflows[0] and not overflows[2] and len(set(scales[3:])) > 1
    run = stopped_after(whole16, 3, tmp_path / "run")
    tiny_runs.train(config, run, *FLOAT16, resume="auto")
    assert_same_run(run, whole16, first_saved=1)
    assert [line["loss_scale"] for line in tiny_runs.metrics(run)] == scales


def test_a_named_checkpoint_begins_another_run_which_may_be_longer(config: Path, whole: Path, tmp_path: Path, capsys):
    """What may change is said; with total_steps the schedule stays what it was."""
    longer = (f"training.train_steps={STEPS + 1}", f"lr_schedule.total_steps={STEPS}")
    run = tiny_runs.train(config, tmp_path / "run", *longer, resume=str(tiny_runs.checkpoint(whole, 4)))
    assert tiny_runs.losses(run)[:-1] == tiny_runs.losses(whole)[4:]
    assert tiny_runs.weights(run, STEPS) == tiny_runs.weights(whole, STEPS)
    assert f"changed since the checkpoint: training.train_steps: {STEPS} -> {STEPS + 1}" in capsys.readouterr().err


def test_a_finished_run_is_left_as_it_is(config: Path, whole: Path, tmp_path: Path, capsys):
    run = shutil.copytree(whole, tmp_path / "run")
    tiny_runs.train(config, run, resume="auto")
    assert_same_run(run, whole, first_saved=1)
    assert json.loads(capsys.readouterr().out)["step"] == STEPS


def test_a_damaged_newest_checkpoint_is_passed_over_with_a_warning(config: Path, whole: Path, tmp_path: Path, capsys):
    run = shutil.copytree(whole, tmp_path / "run")
    file = tiny_runs.checkpoint(run, STEPS) / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    tiny_runs.train(config, run, resume="auto")
    warning = next(line for line in capsys.readouterr().err.splitlines() if line.startswith("warning"))
    assert f"step_{STEPS:08d}" in warning and "model.safetensors has changed" in warning
    assert_same_run(run, whole, first_saved=1)


REFUSED = {
    "model": (("model.hidden_size=64",), ["model.hidden_size was 32", "is 64 now", "checkpoint of another model"]),
    "layers": (("model.num_hidden_layers=2",), ["model.num_hidden_layers was 1", "model.layers.1."]),
    "theta": (("model.rope_theta=500000.0",), ["model.rope_theta was 10000.0"]),
    "seed": (("training.seed=7",), ["training.seed was 42", "is 7 now"]),
    "shuffle": (("data.shuffle=false",), ["data.shuffle was True"]),
    "precision": (tiny_runs.FLOAT16, ["another model or precision", "scale_sense is missing"]),
    "steps": ((f"training.train_steps={STEPS - 2}",), [f"is at step {STEPS}", f"training.train_steps ({STEPS - 2})"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_be_the_same_run_is_refused_by_name(config: Path, whole: Path, tmp_path: Path, name: str):
    overrides, facts = REFUSED[name]
    run = shutil.copytree(whole, tmp_path / "run")
    with pytest.raises(InputError) as error:
        tiny_runs.train(config, run, *overrides, resume="auto")
    assert [fact for fact in facts if fact not in str(error.value)] == []
    assert "step_00000006" in str(error.value)
    assert_same_run(run, whole, first_saved=1)


def without(checkpoint: Path, *fields: str) -> None:
    """Make a checkpoint one of a version that did not have these fields yet."""
    config = yaml.safe_load((checkpoint / "config.yaml").read_text())
    for field in fields:
        section, key = field.split(".")
        del config[section][key]
    (checkpoint / "config.yaml").write_text(yaml.safe_dump(config))
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    file = checkpoint / "config.yaml"
    manifest["files"]["config.yaml"] = {"sha256": sha256_of(file), "bytes": file.stat().st_size}
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))
    (checkpoint / "COMPLETE").write_text(sha256_of(checkpoint / "manifest.json") + "\n")


def test_a_field_that_a_later_version_adds_is_accepted_where_it_has_its_default(
    config: Path, whole: Path, tmp_path: Path, capsys
):
    run = shutil.copytree(whole, tmp_path / "run")
    fields = ("model.rms_norm_eps", "model.rope_scaling", "optimizer.betas", "training.log_steps")
    without(tiny_runs.checkpoint(run, STEPS), *fields)
    tiny_runs.train(config, run, resume="auto")
    assert "changed since" not in capsys.readouterr().err
    with pytest.raises(InputError, match=r"model.rms_norm_eps was 1e-0\d when this was saved and is 0.25 now"):
        tiny_runs.train(config, run, "model.rms_norm_eps=0.25", resume="auto")


def test_other_data_and_another_seq_length_are_refused(config: Path, whole: Path, tmp_path: Path):
    from msllm.testing.datasets import counting_rows, write_dataset

    other = tiny_runs.write_data(tmp_path / "other", seed=1)
    short = tmp_path / "short"
    write_dataset(short, counting_rows(tiny_runs.ROWS, 8, tiny_runs.VOCAB), tiny_runs.VOCAB)
    checkpoint = str(tiny_runs.checkpoint(whole, 2))
    with pytest.raises(InputError, match=f"other data than {other}"):
        tiny_runs.train(config, tmp_path / "a", f"data.train_dataset={other}", resume=checkpoint)
    with pytest.raises(InputError, match="data.seq_length was 16 when this was saved and is 8 now"):
        tiny_runs.train(config, tmp_path / "b", f"data.train_dataset={short}", "data.seq_length=8", resume=checkpoint)


def test_a_folder_with_a_run_is_not_written_without_being_told(config: Path, whole: Path):
    with pytest.raises(InputError, match="holds a run already; add --resume auto"):
        tiny_runs.train(config, whole)


def test_an_earlier_checkpoint_of_the_same_folder_is_not_gone_back_to(config: Path, whole: Path):
    with pytest.raises(InputError, match="holds checkpoints after step 2 of .*step_00000003, step_00000004"):
        tiny_runs.train(config, whole, resume=str(tiny_runs.checkpoint(whole, 2)))


@pytest.mark.parametrize("name", ["best", "zzz"])
def test_a_copy_of_a_checkpoint_is_known_by_its_step_and_not_by_its_name(
    config: Path, whole: Path, tmp_path: Path, name: str
):
    copy = str(shutil.copytree(tiny_runs.checkpoint(whole, 2), tmp_path / name))
    with pytest.raises(InputError, match=f"holds checkpoints after step 2 of {copy}"):
        tiny_runs.train(config, whole, resume=copy)
    run = stopped_after(whole, 2, tmp_path / "run")
    tiny_runs.train(config, run, resume=copy)
    assert_same_run(run, whole, first_saved=1)


@pytest.mark.parametrize("how", ["auto", "named"])
def test_a_checkpoint_is_hashed_once(config: Path, whole: Path, tmp_path: Path, how: str, monkeypatch):
    from msllm.checkpoint import state

    run, last = shutil.copytree(whole, tmp_path / "run"), tiny_runs.checkpoint(tmp_path / "run", STEPS)
    hashed = []
    monkeypatch.setattr(state, "sha256_of", lambda path: hashed.append(path) or sha256_of(path))
    tiny_runs.train(config, run, resume="auto" if how == "auto" else str(last))
    assert hashed.count(last / "model.safetensors") == 1


def test_ranks_that_see_different_checkpoints_do_not_begin(config: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("msllm.training.agreement.Agreement.of_main", lambda *_: 4)
    with pytest.raises(InputError, match="rank 0 goes on from step 4, rank 0 from step 0; all ranks must see the same"):
        tiny_runs.train(config, tmp_path / "run")


CHECKPOINTS = {2: Path("a"), 4: Path("b"), 6: Path("c")}
ADVICE = "; lower optimizer.learning_rate or lengthen lr_schedule.warmup_steps"


@pytest.mark.parametrize(
    ("steps", "updated", "said"),
    [
        ([], 0, f"there is no checkpoint yet{ADVICE}"),
        ([2, 4, 6], 7, "last good checkpoint: c"),
        ([2, 4, 6], 6, f"c holds the weights that failed; last good checkpoint: b{ADVICE}"),
        ([2, 4, 6], 4, f"c holds the weights that failed; last good checkpoint: a{ADVICE}"),
        ([2, 4, 6], 2, f"c holds the weights that failed; there is none before it{ADVICE}"),
        ([2], 2, f"a holds the weights that failed; there is none before it{ADVICE}"),
    ],
)
def test_a_checkpoint_is_called_good_only_where_a_finite_step_came_after_it(steps, updated: int, said: str):
    checkpoints = {step: CHECKPOINTS[step] for step in steps}
    assert way_back(checkpoints, updated, unseen=False) == said
    assert way_back(checkpoints, updated, unseen=True) == said.replace("holds", "may hold")


def test_a_run_whose_checkpoints_are_all_damaged_is_refused(config: Path, whole: Path, tmp_path: Path):
    run = stopped_after(whole, 2, tmp_path / "run")
    for step in (1, 2):
        (tiny_runs.checkpoint(run, step) / "state.json").unlink()
    with pytest.raises(InputError) as error:
        tiny_runs.train(config, run, resume="auto")
    assert "no undamaged checkpoint is left" in str(error.value)
    assert str(error.value).count("state.json is missing") == 2


def test_a_checkpoint_that_is_not_there_is_refused(config: Path, tmp_path: Path):
    with pytest.raises(InputError, match="nowhere: no such checkpoint folder"):
        tiny_runs.train(config, tmp_path / "run", resume=str(tmp_path / "nowhere"))
