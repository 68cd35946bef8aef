"""From a strategy file to the place of every rank, for the commands about rank tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msllm.errors import InputError, Problem

if TYPE_CHECKING:
    from rank_tables.layout import Strategy


def placed_ranks(parallel: Path) -> Strategy:
    """Where `parallel_config:` of a strategy file puts every rank; InputError with what is wrong with it."""
    from msllm.config.load import STRATEGY_SECTIONS, read_run_config
    from msllm.config.yaml_text import read_yaml_file
    from msllm.parallel.mesh import Mesh
    from rank_tables.layout import Coordinate, Strategy

    reading = read_run_config([], parallel, [], {})
    config = reading.sections.get("parallel_config")
    # Only parallel_config places ranks: that a run's other sections are not here, or not whole, is no fault.
    tree = read_yaml_file(parallel, [])
    others = set(STRATEGY_SECTIONS) - {"parallel_config"}
    elsewhere = {line for key, line in tree.lines.items() if key[0] in others} if tree else set()
    problems = [problem for problem in reading.problems if problem.file is not None and problem.line not in elsewhere]
    if problems or config is None:
        raise InputError(problems or reading.problems)
    mesh = Mesh.from_config(config)
    if mesh.size != config.device_num:
        raise InputError(Problem("context_parallel above 1 is not laid out yet", parallel))
    places = tuple(Coordinate(mesh.stage(r), mesh.data_rank(r), mesh.tensor_rank(r)) for r in range(mesh.size))
    return Strategy(mesh.data, mesh.tensor, mesh.stages, places)
