"""From YAML files and `--set` to one frozen `RunConfig`; every fault of all of them in one error."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from msllm.config.checks import cross_faults
from msllm.config.messages import explain, nearest, show_value
from msllm.config.origin import DEFAULT, LoadedConfig, Origin, Origins
from msllm.config.sections import ModelConfig, RunConfig, Section
from msllm.config.yaml_text import KeyPath, YamlTree, dump_yaml, parse_value, read_yaml_file, show_key
from msllm.errors import InputError, Problem
from msllm.files import write_atomic

STRATEGY_SECTIONS: dict[str, tuple[str, ...]] = {
    "parallel_config": (),
    "recompute_config": (),
    "training": ("gradient_accumulation_steps",),
}
"""Sections of a file given with --parallel, each with the keys that it may hold; (): all."""
_MINDFORMERS_SECTIONS = ("runner_config", "runner_wrapper", "train_dataset", "parallel", "trainer", "context")


def load_run_config(
    files: Sequence[Path],
    parallel: Path | None,
    overrides: Sequence[str],
    model_configs: Mapping[str, type[ModelConfig]],
) -> LoadedConfig:
    """Read, merge and check a configuration.

    Args:
        files: YAML files that hold the sections between them; a key stands in one file only.
        parallel: a YAML file of a strategy: `parallel_config:` and `recompute_config:` as MindFormers writes them, and of
            `training:` gradient_accumulation_steps.
        overrides: `section.key=value` each, the value as in YAML; they win over the files.
        model_configs: model_type -> class of the `model:` section.

    Raises:
        InputError: with every fault that was found in the files, the overrides and between the sections.
    """
    reading = read_run_config(files, parallel, overrides, model_configs)
    if reading.problems:
        raise InputError(reading.problems)
    return LoadedConfig(RunConfig(**reading.sections), reading.origins)


@dataclass(frozen=True)
class Reading:
    """What could be read of a configuration, for who has rules of his own to check before all problems are told."""

    sections: dict[str, Any]
    """Name -> section, for those that are valid by themselves."""
    origins: Origins
    problems: list[Problem]
    """Every fault in the files, the overrides and between the sections; empty: the configuration is whole and right."""


def read_run_config(
    files: Sequence[Path],
    parallel: Path | None,
    overrides: Sequence[str],
    model_configs: Mapping[str, type[ModelConfig]],
) -> Reading:
    """As `load_run_config`, but with the problems returned."""
    given = _Given()
    for path in files:
        given.add_file(path, dict.fromkeys(RunConfig.model_fields, ()))
    if parallel is not None:
        given.add_file(parallel, STRATEGY_SECTIONS)
    for override in overrides:
        given.override(override)
    sections = _sections(given, model_configs)
    given.problems += given.origins().locate(cross_faults(sections))
    return Reading(sections, given.origins(), given.problems)


def write_resolved(config: RunConfig, path: Path) -> None:
    """Write every value, defaults included, as a YAML file that loads to an equal configuration."""
    write_atomic(path, dump_yaml(config.to_dict()))


def section_classes(model: type[ModelConfig] = ModelConfig) -> dict[str, type[Section]]:
    """Section name -> class, in the order of RunConfig; `model` is the class of its first one."""
    names = {name: info.annotation for name, info in RunConfig.model_fields.items()}
    return {**names, "model": model}  # type: ignore[dict-item]


@dataclass
class _Given:
    """What was given so far: merged values, the origin of each, and the faults met on the way."""

    values: dict[str, Any] = field(default_factory=dict)
    places: dict[KeyPath, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    sources: list[Path] = field(default_factory=list)
    unreadable: bool = False
    set_paths: dict[KeyPath, str] = field(default_factory=dict)

    def origins(self) -> Origins:
        return Origins(self.places)

    def add_file(self, path: Path, allowed: Mapping[str, tuple[str, ...]]) -> None:
        """Read one file and merge its sections; refuse what `allowed` (section -> keys, (): all) lacks or was given before."""
        if any(os.path.realpath(path) == os.path.realpath(other) for other in self.sources):
            self.problems.append(Problem("this file is given twice", path))
            return
        self.sources.append(path)
        tree = read_yaml_file(path, self.problems)
        if tree is None:
            self.unreadable = True
            return
        for section, values in tree.values.items():
            line = tree.lines.get((section,))
            if section not in allowed:
                self.problems.append(Problem(_unknown_section(section, allowed), path, line))
            elif values is not None and not isinstance(values, dict):
                message = f"{section}: must hold keys, one a line and indented, not {show_value(values)}"
                self.problems.append(Problem(message, path, line))
                self.unreadable = True
            else:
                self.places.setdefault((section,), Origin(str(path), line))
                # A section whose keys are all commented out reads as null: nothing given.
                kept = dict(values or {})
                for key in [key for key in kept if allowed[section] and key not in allowed[section]]:
                    message = f"{section}.{show_key(key)} does not belong in a file given with --parallel; "
                    message += "move it to a file given with --config"
                    self.problems.append(Problem(message, path, tree.lines.get((section, key))))
                    del kept[key]
                self._merge(self.values.setdefault(section, {}), kept, (section,), path, tree)

    def _merge(self, into: dict[str, Any], values: dict[str, Any], prefix: KeyPath, path: Path, tree: YamlTree) -> None:
        for key, value in values.items():
            here = (*prefix, key)
            line = tree.lines.get(here)
            if key not in into:
                into[key] = value
                for inner, inner_line in tree.lines.items():
                    if inner[: len(here)] == here:
                        self.places[inner] = Origin(str(path), inner_line)
            elif isinstance(into[key], dict) and isinstance(value, dict):
                self._merge(into[key], value, here, path, tree)
            else:
                message = f"{'.'.join(here)} is given here and in {self.places[here]}; keep one of the two"
                self.problems.append(Problem(message, path, line))

    def override(self, text: str) -> None:
        """Apply one `--set section.key=value`."""
        name, equals, raw = text.partition("=")
        origin = Origin(f"--set {show_key(text)}")
        path = tuple(name.strip().split("."))
        sections = RunConfig.model_fields
        if not equals or len(path) < 2 or not all(path):
            self.problems.append(Problem(f"{origin}: expected section.key=value, as --set training.train_steps=100"))
            return
        if path[0] not in sections:
            self.problems.append(Problem(f"{origin}: {_unknown_section(path[0], sections)}"))
            return
        try:
            value, inner_paths = parse_value(raw)
        except ValueError as error:
            self.problems.append(Problem(f"{origin}: {error}"))
            return
        if path in self.set_paths:
            self.problems.append(Problem(f"{origin}: {name} is set twice, also by {self.set_paths[path]}; keep one"))
            return
        self.set_paths[path] = str(origin)
        target = self.values.setdefault(path[0], {})
        for depth, key in enumerate(path[1:-1], start=2):
            if not isinstance(target.get(key), dict):
                target[key] = {}
                self.places[path[:depth]] = origin
            target = target[key]
        target[path[-1]] = value
        for old in [known for known in self.places if known[: len(path)] == path]:
            del self.places[old]
        self.places[path] = origin
        self.places.update({(*path, *inner): origin for inner in inner_paths})


def _unknown_section(section: str, allowed: Iterable[str]) -> str:
    message = f"unknown section {show_key(section)}; "
    if allowed is STRATEGY_SECTIONS and section not in _MINDFORMERS_SECTIONS:
        return (
            f"{message}a file given with --parallel holds parallel_config:, recompute_config: and "
            "training.gradient_accumulation_steps only"
        )
    for name, owner in section_classes().items():
        if section in owner.model_fields:
            return f"{message}it is a key of {name}:"
    if section in _MINDFORMERS_SECTIONS:
        return f"{message}convert a MindFormers YAML with `msllm config import-mindformers`"
    return message + nearest(section, allowed)


def _model_class(given: _Given, model_configs: Mapping[str, type[ModelConfig]]) -> type[ModelConfig] | None:
    """The class that model.model_type names; None, with a problem, where it names none."""
    model_type = given.values.get("model", {}).get("model_type")
    legal = ", ".join(sorted(model_configs))
    if isinstance(model_type, str) and model_type in model_configs:
        return model_configs[model_type]
    if "model_type" not in given.values.get("model", {}):
        if not given.unreadable:
            given.problems.append(_missing(given, f"model.model_type is required: one of {legal}", ("model",)))
        return None
    hint = nearest(model_type, model_configs) if isinstance(model_type, str) else f"legal: {legal}"
    message = f"model.model_type ({show_value(model_type)}) is not a known model; {hint}"
    given.problems.append(given.origins().problem(message, ("model", "model_type")))
    return None


def _missing(given: _Given, message: str, path: KeyPath) -> Problem:
    """A required key that is absent: located at its section, or at the files where there is no such section."""
    origins = given.origins()
    if origins.near(path) is DEFAULT and given.sources:
        return Problem(f"{message} (not in {', '.join(str(source) for source in given.sources)})")
    return origins.problem(message, path)


def _sections(given: _Given, model_configs: Mapping[str, type[ModelConfig]]) -> dict[str, Any]:
    """Name -> section for those that are valid by themselves; the faults of the others go to `given.problems`."""
    model_class = _model_class(given, model_configs)
    classes = section_classes(model_class or ModelConfig)
    valid: dict[str, Any] = {}
    for name, owner in classes.items():
        if name == "model" and model_class is None:
            continue
        section, errors = _validate(owner, given.values.get(name, {}))
        if section is not None:
            valid[name] = section
        for detail in errors:
            path = (name, *(str(part) for part in detail["loc"]))
            message = explain(detail, name, owner, classes)
            if detail["type"] != "missing" or isinstance(detail["loc"][-1], int):
                given.problems.append(given.origins().problem(message, path))
            elif not given.unreadable:
                given.problems.append(_missing(given, message, path))
    return valid


def _validate(owner: type[Section], values: dict[str, Any]) -> tuple[Section | None, list[ErrorDetails]]:
    """The section and what is wrong with it. Unknown keys alone do not stop it from being checked against others."""
    try:
        return owner.model_validate(values), []
    except ValidationError as error:
        details = error.errors(include_url=False)
    unknown = {
        detail["loc"][0] for detail in details if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1
    }
    if len(unknown) < len(details):
        return None, details
    return owner.model_validate({key: value for key, value in values.items() if key not in unknown}), details
