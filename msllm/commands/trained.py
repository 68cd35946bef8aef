"""A trained model from a run's folder or from one of its checkpoints, for the commands that use one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from msllm.errors import InputError, Problem

if TYPE_CHECKING:
    import numpy as np

    from msllm.config.sections import RunConfig
    from msllm.data.tokenizer import Tokenizer

Checkpoint = Annotated[
    Path,
    typer.Option(
        "--checkpoint",
        "-k",
        metavar="DIR",
        help="A run's folder (its newest good checkpoint) or one checkpoint's folder.",
    ),
]


@dataclass(frozen=True)
class Trained:
    """A checkpoint and what it says of itself."""

    path: Path
    """The checkpoint's folder."""
    config: RunConfig
    """The configuration that it was trained with."""
    tokenizer_file: Path | None
    """The tokenizer that the run's folder holds, if any."""
    tokenizer_fingerprint: str
    """sha256 of the tokenizer that its data was made with."""
    eod_id: int
    """Id that ends a document in its data."""

    @property
    def step(self) -> int:
        """Steps that it was trained for."""
        from msllm.checkpoint.state import step_of

        return step_of(self.path)


def find_trained(path: Path) -> Trained:
    """The checkpoint that `--checkpoint` names, after every byte of it was checked.

    Raises:
        InputError: neither a run nor a checkpoint, or none that is whole.
    """
    import json

    from msllm.checkpoint.state import damage_of, newest_good
    from msllm.commands.options import load_from_options
    from msllm.training.run_directory import RunDirectory

    if path.is_file():
        raise InputError(Problem("is a file; give a run's folder or a checkpoint's", path))
    if not path.is_dir():
        raise InputError(Problem("no such folder; give a run's folder or a checkpoint's", path))
    run = path
    if (path / "model.safetensors").exists() or (path / "state.json").exists():
        run = path.parent.parent
        if damage := damage_of(path):
            raise InputError([Problem(text, path) for text in damage])
    else:
        found, damaged = newest_good(RunDirectory(path).checkpoints)
        if found is None:
            raise InputError([*damaged, Problem("holds no complete checkpoint", path)])
        for problem in damaged:
            typer.echo(f"warning: passed over a damaged checkpoint: {problem}", err=True)
        path = found
    config = load_from_options([path / "config.yaml"]).config
    data = json.loads((path / "state.json").read_text())["dataset"]
    return Trained(path, config, RunDirectory(run).tokenizer_file(), data["tokenizer"], data["eod_id"])


def load_weights(trained: Trained) -> dict[str, np.ndarray]:
    """Name -> weight, float32; no optimizer state."""
    from safetensors.numpy import load_file

    return load_file(trained.path / "model.safetensors")


def load_model(trained: Trained) -> Any:
    """The network with the checkpoint's weights, in Graph mode on the device that this machine has. Precision float32."""
    import mindspore as ms

    from msllm.parallel.world import resolve_device_target
    from msllm.registry import build_model
    from msllm.training.amp import apply_amp
    from msllm.training.build import set_tensors

    weights = load_weights(trained)
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_device(resolve_device_target("auto"))
    model = apply_amp(build_model(trained.config.model), "O0", "float32")
    set_tensors(model, weights)
    return model


def load_tokenizer_of(trained: Trained, given: Path | None) -> Tokenizer:
    """The tokenizer that the model was trained with.

    Raises:
        InputError: none is there, or `given` has another fingerprint or more ids than the model.
    """
    from msllm.data.tokenizer import load_tokenizer

    path = given or trained.tokenizer_file
    if path is None:
        raise InputError(Problem("the run's folder holds no tokenizer; give one with --tokenizer", trained.path))
    tokenizer = load_tokenizer(path, trained.eod_id)
    wanted = trained.tokenizer_fingerprint
    if tokenizer.fingerprint != wanted:
        raise InputError(
            Problem(
                f"tokenizer {path} ({tokenizer.fingerprint[:12]}) is not the one that the training data was made with "
                f"({wanted[:12]})",
                trained.path,
            )
        )
    return tokenizer
