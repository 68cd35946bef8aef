"""The entries of a rank table, as far as each is right by itself, and the faults met on the way."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from msllm.errors import Problem
from rank_tables import fields
from rank_tables.fields import Key
from rank_tables.json_positions import Node

ORDER = "order"
"""Rule of faults where each rank stands once, but not in the order of server_id."""
RANK = "rank"
"""Rule of faults where a rank stands twice, or not at all."""


@dataclass(frozen=True)
class Finding:
    """One fault or note."""

    rule: str
    """Kind of fault: syntax, key, type, value, duplicate, count, mixed, group, rank, order, stale; note."""
    message: str
    entry: str = ""
    """Where in the document, as server_list[0].device[3]."""
    line: int | None = None

    def problem(self, file: str | Path | None) -> Problem:
        """As the command line reports it."""
        return Problem(f"{self.entry}: {self.message}" if self.entry else self.message, file, self.line)


@dataclass
class Entry:
    """A mapping of the document with those of its values that are right by themselves."""

    path: str
    line: int
    values: dict[str, str] = field(default_factory=dict)
    value_lines: dict[str, int] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)
    """All keys that are there, wrong values included."""

    def line_of(self, key: str) -> int:
        """Line of a value; of the entry where there is none."""
        return self.value_lines.get(key, self.line)


@dataclass
class ServerEntry(Entry):
    """A server with its devices."""

    devices: list[Entry] = field(default_factory=list)

    @property
    def name(self) -> str:
        """How messages call it."""
        return self.values.get("server_id", self.path)


@dataclass
class GroupEntry(Entry):
    """A super pod or a cluster with its members."""

    members: list[Entry] = field(default_factory=list)


class Shape:
    """Walks the document by the key tables of `fields`, and keeps what is right for the rules between entries."""

    def __init__(self) -> None:
        self.faults: list[Finding] = []
        self.notes: list[Finding] = []
        self.top = Entry("", 1)
        self.servers: list[ServerEntry] = []
        self.super_pods: list[GroupEntry] = []
        self.clusters: list[GroupEntry] = []

    def fault(self, rule: str, message: str, entry: str, line: int) -> None:
        self.faults.append(Finding(rule, message, entry, line))

    def mapping(self, node: Node, keys: Mapping[str, Key], path: str, what: str) -> Entry | None:
        """Check one mapping and what is below it; the entry made of it."""
        if not isinstance(node.value, dict):
            message = f"{what} must be a mapping {{...}}, not {_show(node)}"
            self.fault("type", message, path, node.line)
            return None
        entry = self._entry(keys, path, node.line)
        entry.keys = set(node.value)
        for key, line in node.repeated:
            self.fault("key", f"key {key} is given twice; keep one", path, line)
        unknown = [key for key in node.value if key not in keys]
        entry.missing = {key for key, rule in keys.items() if rule.required and key not in node.value}
        for key in unknown:
            self._unknown(key, keys, entry, node.key_lines[key])
        for key in [key for key in keys if key in entry.missing]:
            self.fault("key", f"key {key} is missing", path, node.line)
        for key, child in node.value.items():
            if key in keys:
                self._value(key, child, keys[key], entry)
        return entry

    def _entry(self, keys: Mapping[str, Key], path: str, line: int) -> Entry:
        if keys is fields.TABLE:
            return self.top
        if keys is fields.SERVER:
            self.servers.append(ServerEntry(path, line))
            return self.servers[-1]
        if keys in (fields.SUPER_POD, fields.CLUSTER):
            groups = self.super_pods if keys is fields.SUPER_POD else self.clusters
            groups.append(GroupEntry(path, line))
            return groups[-1]
        return Entry(path, line)

    def _unknown(self, key: str, keys: Mapping[str, Key], entry: Entry, line: int) -> None:
        if key in fields.ELSEWHERE:
            self.fault("key", f"{key} belongs to {fields.ELSEWHERE[key]}", entry.path, line)
            return
        near = difflib.get_close_matches(key.lower(), [name for name in keys if name not in entry.keys], 1, 0.75)
        if near:
            entry.missing.discard(near[0])
            entry.keys.add(near[0])
            self.fault("key", f"unknown key {key}; did you mean {near[0]}?", entry.path, line)
        else:
            message = f"key {key} is not known here and is left alone; known: {', '.join(keys)}"
            self.notes.append(Finding("note", message, entry.path, line))

    def _value(self, key: str, node: Node, rule: Key, entry: Entry) -> None:
        path = f"{entry.path}.{key}" if entry.path else key
        if rule.rule is None:
            self._list(key, node, path, entry)
        elif not isinstance(node.value, str):
            written = json.dumps(node.plain())
            hint = f'; write "{written}"' if isinstance(node.value, (int, float)) and node.value is not True else ""
            message = f"{key} must be text in double quotes, not {_show(node)}{hint}"
            self.fault("type", message, entry.path, node.line)
        else:
            problem = rule.rule(node.value)
            if problem:
                self.fault("value", f"{key} {problem}", entry.path, node.line)
            else:
                entry.values[key] = node.value
                entry.value_lines[key] = node.line

    def _list(self, key: str, node: Node, path: str, entry: Entry) -> None:
        if not isinstance(node.value, list) or not node.value:
            kind = "is empty" if node.value == [] else f"must be a list [...], not {_show(node)}"
            self.fault("type", f"{key} {kind}", entry.path, node.line)
            return
        keys, what = self._items(key, entry)
        for position, item in enumerate(node.value):
            child = self.mapping(item, keys, f"{path}[{position}]", what)
            if child is not None and isinstance(entry, ServerEntry):
                entry.devices.append(child)
            elif child is not None and isinstance(entry, GroupEntry):
                entry.members.append(child)

    def _items(self, key: str, entry: Entry) -> tuple[Mapping[str, Key], str]:
        """The keys of a list's elements, and what an element is called."""
        if key == "device":
            return fields.DEVICE, "a device"
        if key == "super_pod_list":
            return fields.SUPER_POD, "a super pod"
        if key == "cluster_list":
            return fields.CLUSTER, "a cluster"
        return (fields.SERVER, "a server") if entry is self.top else (fields.MEMBER, "a server of the group")


def _show(node: Node) -> str:
    """A value in a message: cut, and lists and mappings by kind."""
    if isinstance(node.value, dict):
        return "a mapping"
    if isinstance(node.value, list):
        return "a list"
    text = json.dumps(node.value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."
