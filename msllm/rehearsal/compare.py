"""Do the ranks of a strategy compute what one device computes? Tensor by tensor, each rank at the exact slice that it holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from msllm.parallel.held import ACCUMULATED, slice_of

OUTPUTS = ("loss", "grad_norm", "lr", "loss_scale", "finite")
"""Of a step's outputs those that are the same on every rank; the loss of its own rows is not."""
FIRST_MOMENT, SECOND_MOMENT = "adam_m.", "adam_v."
SMALLEST_GRADIENT = 1e-2
"""A tensor's gradients are judged by the largest of all tensors times this where they are smaller still: a gradient that is zero
but for rounding, as of the bias of attention keys, agrees with nothing."""


@dataclass(frozen=True)
class Difference:
    """How far a rank's tensor is from the single device's slice: max|a - b| / max|full tensor|; infinite for NaN and shapes."""

    name: str
    rank: int
    step: int
    error: float

    def __str__(self) -> str:
        return f"{self.name} on rank {self.rank} after step {self.step}: relative error {self.error:.1e}"


@dataclass(frozen=True)
class Verdict:
    """What a comparison has found."""

    tolerance: float
    compared: int
    """Tensors that were compared, over all ranks and steps."""
    worst: Difference | None
    beyond: tuple[Difference, ...]
    """All over the tolerance, in the order of steps, the first moments first: they are where a wrong gradient shows."""
    missing: tuple[str, ...]
    """What a rank should have given, or some rank should hold."""
    surplus: tuple[str, ...]
    """What a rank gave that one device does not have."""

    @property
    def passed(self) -> bool:
        """Whether all agrees and something was compared."""
        return bool(self.compared) and not (self.beyond or self.missing or self.surplus)


def compare(
    expected: Mapping[str, np.ndarray],
    answers: Sequence[Mapping[str, np.ndarray]],
    held: Sequence[Sequence[Mapping[str, Any]]],
    tolerance: float = 1e-4,
) -> Verdict:
    """Compare the ranks' answers with those of one device, both as `execute.record` gives them.

    Args:
        expected: of the single device, with full tensors.
        answers: for each rank.
        held: for each rank the `parameters` of the worker's result: name, shape, slice and layout of all that it holds.
        tolerance: of the relative error. Weights get, beyond it, what AdamW makes of gradients that agree within it (see
            `_update_slack`): it divides a gradient by its own size, so that where that is tiny, rounding moves a weight by up to
            a learning rate. The gradients themselves are judged by the first moments, which are theirs after the first step.
    """
    by_step = _by_step(expected)
    scales = {step: _scales(tensors) for step, tensors in by_step.items()}
    slack = _update_slack(by_step, tolerance)
    differences: list[Difference] = []
    missing, surplus = _unheld(by_step, held), []
    for rank, (given, parameters) in enumerate(zip(answers, held)):
        slices = {q["name"]: slice_of(q, rank) for q in parameters if not q["name"].startswith(ACCUMULATED)}
        given_steps = _by_step(given)
        for step, tensors in by_step.items():
            own = given_steps.get(step, {})
            wanted = {**dict.fromkeys((name for name in OUTPUTS if name in tensors), ()), **slices}
            missing += [f"{name} on rank {rank} after step {step}" for name in wanted if name not in own]
            surplus += [f"{name} on rank {rank} after step {step}" for name in _surplus(own, wanted, tensors)]
            for name in wanted.keys() & own.keys() & tensors.keys():
                allowed = slack[step][name][wanted[name]] if name in slack[step] else 0.0
                error = relative_error(tensors[name][wanted[name]], own[name], scales[step][name], allowed)
                differences.append(Difference(name, rank, step, error))
    missing += [f"all of rank {rank}" for rank in range(len(answers), len(held))]
    beyond = sorted((d for d in differences if not d.error <= tolerance), key=_order)
    worst = max(differences, key=lambda d: d.error, default=None)
    return Verdict(tolerance, len(differences), worst, tuple(beyond), tuple(missing), tuple(surplus))


def relative_error(expected: np.ndarray, given: np.ndarray, scale: float, allowed: np.ndarray | float = 0.0) -> float:
    """max(|expected - given| - allowed) / scale; infinite where shapes or the places of infinities and NaN differ."""
    if expected.shape != given.shape:
        if expected.size != 1 or given.size != 1:
            return float("inf")
        given = given.reshape(expected.shape)  # CPU gives some scalars out as one element
    expected, given = expected.astype(np.float64), given.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(finite, np.isfinite(given)) or not np.array_equal(
        expected[~finite], given[~finite], equal_nan=True
    ):
        return float("inf")
    difference = np.where(finite, np.abs(np.where(finite, expected, 0.0) - np.where(finite, given, 0.0)) - allowed, 0.0)
    return float(max(difference.max(initial=0.0), 0.0) / scale)


def _by_step(answers: Mapping[str, np.ndarray]) -> dict[int, dict[str, np.ndarray]]:
    steps: dict[int, dict[str, np.ndarray]] = {}
    for key, value in answers.items():
        number, _, name = key.partition("/")
        steps.setdefault(int(number), {})[name] = value
    return dict(sorted(steps.items()))


def _largest(tensor: np.ndarray) -> float:
    """The largest finite magnitude of a tensor."""
    finite = np.abs(tensor[np.isfinite(tensor)].astype(np.float64))
    return float(finite.max(initial=0.0))


def _scales(tensors: Mapping[str, np.ndarray]) -> dict[str, float]:
    """What the error of each tensor of a step is relative to; never zero."""
    largest = {name: _largest(tensor) for name, tensor in tensors.items()}
    for prefix, smallest in ((FIRST_MOMENT, SMALLEST_GRADIENT), (SECOND_MOMENT, SMALLEST_GRADIENT**2)):
        names = [name for name in largest if name.startswith(prefix)]
        floor = smallest * max((largest[name] for name in names), default=0.0)
        largest |= {name: max(largest[name], floor) for name in names}
    return {name: value or 1.0 for name, value in largest.items()}


def _update_slack(
    by_step: Mapping[int, Mapping[str, np.ndarray]], tolerance: float
) -> dict[int, dict[str, np.ndarray]]:
    """By how much each element of each weight may be off, in the weight's own unit, by step.

    Gradients are off by up to `tolerance` of their tensor's scale. An update, learning rate times first moment over root of the
    second, is then off by the same part of the learning rate as the error is of this element's moment, at most by two learning
    rates. The slack of steps adds up.
    """
    slack: dict[int, dict[str, np.ndarray]] = {}
    before: dict[str, np.ndarray] = {}
    for step, tensors in by_step.items():
        scales = _scales(tensors)
        lr = float(tensors["lr"]) if "lr" in tensors else 0.0
        current = {}
        for name, moment in tensors.items():
            if name.startswith(FIRST_MOMENT):
                weight = name.removeprefix(FIRST_MOMENT)
                error = tolerance * scales[name] / np.maximum(np.abs(moment), np.finfo(np.float32).tiny)
                current[weight] = before.get(weight, 0.0) + lr * np.minimum(error, 2.0)
        slack[step] = before = current
    return slack


def _unheld(by_step: Mapping[int, Mapping[str, np.ndarray]], held: Iterable[Iterable[Mapping[str, Any]]]) -> list[str]:
    """Parameters of the single device that no rank holds."""
    names = {parameter["name"] for parameters in held for parameter in parameters}
    wanted = {name for tensors in by_step.values() for name in tensors} - {*OUTPUTS, "local_loss"}
    return [f"{name} on every rank" for name in sorted(wanted - names)]


def _surplus(own: Iterable[str], wanted: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> Iterator[str]:
    for name in own:
        known = name in wanted and name in tensors
        if not known and name != "local_loss" and not name.startswith(ACCUMULATED):
            yield name


def _order(difference: Difference) -> tuple[int, bool, float]:
    return (difference.step, not difference.name.startswith(FIRST_MOMENT), -difference.error)
