"""A configuration that knows where each of its values came from, and faults that name those places."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msllm.config.sections import RunConfig
from msllm.config.yaml_text import KeyPath
from msllm.errors import Problem


@dataclass(frozen=True)
class Origin:
    """Where a value was given: a line of a file, a `--set`, or nowhere (`source` is "default")."""

    source: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{self.source}:{self.line}" if self.line else self.source


DEFAULT = Origin("default")


@dataclass(frozen=True)
class Fault:
    """A rule that several fields break together. `fields` are their paths, as "model.num_attention_heads"."""

    message: str
    fields: tuple[str, ...]


class Origins:
    """Path of keys -> Origin, for every key that was given in a file or by `--set`."""

    def __init__(self, given: Mapping[KeyPath, Origin] | None = None):
        self.given = dict(given or {})

    def of(self, path: KeyPath) -> Origin:
        """Where exactly this key was given, or DEFAULT."""
        return self.given.get(path, DEFAULT)

    def near(self, path: KeyPath) -> Origin:
        """Where this key was given, or else the innermost mapping around it that was given."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.given:
                return self.given[path[:length]]
        return DEFAULT

    def problem(self, message: str, path: KeyPath) -> Problem:
        """A fault of one key, located by file and line or by its `--set`."""
        origin = self.near(path)
        if origin is DEFAULT:
            return Problem(message)
        if origin.line is None:
            return Problem(f"{message} ({origin})")
        return Problem(message, origin.source, origin.line)

    def locate(self, faults: Iterable[Fault]) -> list[Problem]:
        """Faults as problems; the places of all fields that were given stand at the end of each message."""
        problems = []
        for fault in faults:
            places = [self.of(tuple(name.split("."))) for name in fault.fields]
            given = list(dict.fromkeys(str(place) for place in places if place is not DEFAULT))
            problems.append(Problem(f"{fault.message} ({', '.join(given)})" if given else fault.message))
        return problems


@dataclass(frozen=True)
class LoadedConfig:
    """A valid configuration and the origin of every value in it."""

    config: RunConfig
    origins: Origins

    def rows(self) -> Iterator[tuple[str, Any, Origin]]:
        """(path, value, origin) of every value, in the order of the sections; nested mappings are taken apart."""
        for section, values in self.config.to_dict().items():
            for path, value in _leaves((section,), values):
                yield ".".join(path), value, self.origins.of(path)


def _leaves(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves((*path, key), inner)
    else:
        yield path, value
