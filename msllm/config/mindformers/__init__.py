"""A MindFormers YAML as a configuration of ours, and a report of what was not carried over.

`run_rules.py`, `parallel_rules.py` and `model_rules.py` say what becomes of a key, `reasons.py` why one is left out. Every
key of the file is either taken by a rule or listed with a reason, so nothing is dropped silently; and where MindFormers'
default differs from ours, its default is written out.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from msllm.config.load import load_run_config
from msllm.config.mindformers.model_rules import model
from msllm.config.mindformers.reasons import drop_the_rest
from msllm.config.mindformers.report import Imported, Source
from msllm.config.mindformers.run_rules import RUN_RULES
from msllm.config.sections import ModelConfig
from msllm.config.yaml_text import read_yaml_file
from msllm.errors import InputError, Problem
from msllm.files import write_atomic


def import_mindformers(path: Path, output: Path, model_configs: Mapping[str, type[ModelConfig]]) -> Imported:
    """Convert the MindFormers YAML at `path` and write the result to `output`, which must not exist.

    Raises:
        InputError: `path` cannot be read as YAML or holds nothing of MindFormers'; `output` exists.
    """
    problems: list[Problem] = []
    if output.exists():
        problems.append(Problem("exists already; give another --output or remove it", output))
    tree = read_yaml_file(path, problems)
    if tree is None or problems:
        raise InputError(problems)
    source, imported = Source(tree.values), Imported()
    for rule in (*RUN_RULES, model):
        rule(source, imported)
    if not imported.values:
        raise InputError(Problem("holds no section of a MindFormers configuration that could be carried over", path))
    drop_the_rest(source)
    imported.dropped = source.grouped()
    write_atomic(output, imported.text(path.name))
    try:
        load_run_config([output], None, [], model_configs)
    except InputError as error:
        imported.missing = [problem.message for problem in error.problems]
    return imported
