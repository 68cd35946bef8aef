"""What became of each value of a MindFormers YAML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msllm.config.load import section_classes
from msllm.config.yaml_text import dump_inline


def is_count(value: Any) -> bool:
    """Whether a value is a whole number above 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def is_number(value: Any) -> bool:
    """Whether a value is a number; true and false are none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_on(value: Any) -> bool:
    """Whether a switch is on; 0, 0.0, False and None are off."""
    return bool(value) and value != "None"


class Source:
    """A MindFormers YAML, which remembers what became of each of its values."""

    def __init__(self, values: Mapping[str, Any]):
        self.values = values
        self.fates: dict[str, str | None] = {}
        """Path of a value -> None where it was carried over, else why not."""

    def get(self, path: str) -> Any:
        """The value at `a.b.c`; None where it is absent or null. Does not decide what becomes of it."""
        value: Any = self.values
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def take(self, path: str) -> Any:
        """The value at `path`, which counts as carried over."""
        if self.get(path) is not None:
            self.fates[path] = None
        return self.get(path)

    def drop(self, path: str, reason: str) -> None:
        """Say why what stands at or below `path` is not carried over, where that is not decided yet."""
        if self.get(path) is not None:
            self.fates.setdefault(path, reason)

    def _decision(self, leaf: str) -> str | None:
        """The path at or nearest above `leaf` about which something was decided."""
        parts = leaf.split(".")
        prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
        return next((prefix for prefix in prefixes if prefix in self.fates), None)

    def is_decided(self, leaf: str) -> bool:
        """Whether a rule took or dropped this value."""
        return self._decision(leaf) is not None

    def grouped(self) -> dict[str, list[str]]:
        """Reason -> paths of what was dropped; a branch that was dropped whole for one reason is named once.

        What a rule decided comes before what no rule knew.
        """
        fates = {leaf: self.fates[self._decision(leaf) or leaf] for leaf in self.leaves()}
        groups: dict[str, list[str]] = {reason: [] for reason in self.fates.values() if reason is not None}
        for leaf, reason in fates.items():
            if reason is None:
                continue
            parts = leaf.split(".")
            for length in range(1, len(parts) + 1):
                prefix = ".".join(parts[:length])
                inside = [fate for other, fate in fates.items() if f"{other}.".startswith(f"{prefix}.")]
                if all(fate == reason for fate in inside):
                    break
            if prefix not in groups[reason]:
                groups[reason].append(prefix)
        return {reason: paths for reason, paths in groups.items() if paths}

    def leaves(self) -> dict[str, Any]:
        """Path -> value of all values; a list is one value, as is an empty mapping."""
        found: dict[str, Any] = {}

        def walk(value: Any, path: str) -> None:
            if isinstance(value, dict) and value:
                for key, inner in value.items():
                    walk(inner, f"{path}.{key}" if path else key)
            else:
                found[path] = value

        walk(self.values, "")
        return found


@dataclass
class Imported:
    """The outcome: `values` per section, the origin of each value, and what was left behind."""

    values: dict[str, dict[str, Any]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """section.key -> where its value comes from."""
    differences: list[str] = field(default_factory=list)
    """What was carried over and yet does not behave as in MindFormers."""
    dropped: dict[str, list[str]] = field(default_factory=dict)
    """Reason -> paths of the MindFormers file."""
    missing: list[str] = field(default_factory=list)
    """What the written file still needs before it is a configuration."""

    def put(self, path: str, value: Any, note: str) -> None:
        """Set section.key."""
        section, key = path.split(".")
        self.values.setdefault(section, {})[key] = value
        self.notes[path] = note

    def get(self, path: str, default: Any = None) -> Any:
        """The value set so far for section.key."""
        section, key = path.split(".")
        return self.values.get(section, {}).get(key, default)

    def text(self, source_name: str) -> str:
        """The YAML file: each value with its origin beside it, and at the end what was not carried over."""
        lines = [f"# Imported from {source_name} (MindFormers)."]
        for section in section_classes():
            if section not in self.values:
                continue
            rows = [(f"  {key}: {dump_inline(value)}", key) for key, value in self.values[section].items()]
            width = max(len(row) for row, _ in rows)
            lines += ["", f"{section}:"]
            lines += [f"{row:<{width}}  # {self.notes[f'{section}.{key}']}" for row, key in rows]
        if self.dropped:
            lines += ["", "# Not carried over:"]
            lines += [f"# - {', '.join(paths)}: {reason}" for reason, paths in self.dropped.items()]
        return "\n".join(lines) + "\n"
