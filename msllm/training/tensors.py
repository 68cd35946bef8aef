"""The parameters of a step as full tensors, of which this rank holds all or a part of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from msllm.parallel.held import ACCUMULATED, Held, compiled_layouts, held_by_rank, whole
from msllm.parallel.world import World


class StepTensors:
    """What a checkpoint has of a step cell.

    Args:
        step_cell: not compiled yet: compilation gives the parameters the shapes of this rank's slices.
        world: this rank.
    """

    def __init__(self, step_cell: Any, world: World):
        self.step_cell, self.world = step_cell, world
        self.full_shapes: dict[str, tuple[int, ...]] = {
            p.name: tuple(p.shape) for p in step_cell.get_parameters() if not p.name.startswith(ACCUMULATED)
        }

    def compile(self, rows: int, width: int) -> None:
        """Have MindSpore cut the parameters, for a batch of this rank of (rows, width) tokens. Nothing where it cuts none."""
        from mindspore import Tensor

        if self.world.semi_auto:
            self.step_cell.compile(Tensor(np.zeros((rows, width), np.int32)))

    def held(self) -> list[Held]:
        """What this rank holds, once the step is compiled."""
        if not self.world.semi_auto:
            return whole(self.step_cell.get_parameters())
        layouts = compiled_layouts(self.step_cell)
        return held_by_rank(self.step_cell.get_parameters(), self.full_shapes, layouts, self.world.rank)

    def values(self, held: Sequence[Held]) -> dict[str, dict[str, np.ndarray]]:
        """model and optimizer -> name -> what this rank holds.

        Nothing else is asked for: the weights of other pipeline stages would be made at their full size.
        """
        weights = {weight.name for weight in self.step_cell.weights}
        parameters = {parameter.name: parameter for parameter in self.step_cell.get_parameters()}
        found: dict[str, dict[str, np.ndarray]] = {"model": {}, "optimizer": {}}
        for part in held:
            found["model" if part.name in weights else "optimizer"][part.name] = parameters[part.name].asnumpy()
        return found

    def problems(self, found: Mapping[str, tuple[int, ...]]) -> list[str]:
        """How full tensors of these names and shapes differ from the step's."""
        wanted = self.full_shapes
        problems = [f"{name} is missing" for name in wanted if name not in found]
        problems += [f"{name} has no place in this model" for name in found if name not in wanted]
        problems += [
            f"{name} has shape {found[name]}, the model {shape}"
            for name, shape in wanted.items()
            if name in found and found[name] != shape
        ]
        return problems

    def set(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Put arrays, each what this rank holds of a tensor, in the place of the parameters of their names."""
        from mindspore import Tensor

        for parameter in self.step_cell.get_parameters():
            if parameter.name in arrays:
                # A parameter that is not said to be a slice would be cut again by the next graph that is compiled.
                value = Tensor(arrays[parameter.name], parameter.dtype)
                parameter.set_data(value, slice_shape=self.world.semi_auto)
