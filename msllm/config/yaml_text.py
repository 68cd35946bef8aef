"""YAML to plain values with the line of every key, and back.

Scalars follow YAML 1.2's core schema instead of PyYAML's 1.1, whose readings surprise: `3e-4` is a number here (1.1: text),
`010` and `1:30` are text (1.1: 8 and 90), `no` is text (1.1: false). The writer uses the same rules, so that what it
writes reads back equal.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from msllm.errors import Problem

KeyPath = tuple[str, ...]
"""Keys from the top of a file down to a value; positions in a list are written as text."""

MAX_BYTES = 4 << 20
MAX_VALUES = 100_000

# The order matters where two patterns match the same text: the first one wins.
_FLOAT = (
    r"[-+]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_SCALARS = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?(?:0|[1-9][0-9]*|[1-9][0-9]{0,2}(?:_[0-9]{3})+)|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", _FLOAT, list("-+.0123456789")),
    ("merge", r"<<", ["<"]),
)


class _Loader(yaml.SafeLoader):
    """Reads scalars by `_SCALARS` only."""


class _Dumper(yaml.SafeDumper):
    """Quotes text that YAML 1.1 or `_SCALARS` would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        """Write a value that occurs twice in full both times: files are read by people."""
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """Text as YAML; rare line breaks are escaped, as PyYAML would read them back as spaces from single quotes."""
    style = '"' if any(mark in text for mark in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)

# The loader forgets YAML 1.1's patterns; the dumper keeps them too, so that other readers see text as text.
_Loader.yaml_implicit_resolvers = {}
for _class in (_Loader, _Dumper):
    for _name, _pattern, _first in _SCALARS:
        _class.add_implicit_resolver(f"tag:yaml.org,2002:{_name}", re.compile(f"(?:{_pattern})\\Z"), _first)


@dataclass
class YamlTree:
    """What a YAML text says: `values` at the top, and the line on which each key (or list element) stands."""

    values: dict[str, Any] = field(default_factory=dict)
    lines: dict[KeyPath, int] = field(default_factory=dict)


class _Refused(Exception):
    """Stops the reading of a text at the first fault that leaves nothing to go on with."""

    def __init__(self, message: str, mark: yaml.Mark | None = None):
        super().__init__(message)
        self.line = mark.line + 1 if mark else None


def show_key(key: str) -> str:
    """A key as it was written, cut and with control characters escaped."""
    text = repr(key)[1:-1]
    return text if len(text) <= 60 else text[:57] + "..."


def dump_yaml(values: Any) -> str:
    """Block-style YAML of plain values, keys in the order given."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def dump_inline(value: Any) -> str:
    """YAML of one value on one line, as it stands behind `key: `."""
    text = yaml.dump([value], Dumper=_Dumper, default_flow_style=True, allow_unicode=True, width=1 << 20)
    return text.strip()[1:-1]


def read_yaml_file(path: Path, problems: list[Problem]) -> YamlTree | None:
    """Read a file whose top is a mapping; faults go to `problems`, None where nothing could be read."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        problems.append(Problem(f"cannot read this configuration: {error.strerror}", path))
        return None
    if len(raw) > MAX_BYTES:
        problems.append(Problem(f"larger than {MAX_BYTES >> 20} MB, so not a configuration", path))
        return None
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        problems.append(Problem(f"not UTF-8 text: byte 0x{raw[error.start]:02x} at offset {error.start}", path, line))
        return None
    reader = _Reader()
    try:
        values = reader.read(text)
        if values is None:
            raise _Refused("the file is empty; expected sections such as model:, data:, training:")
        if not isinstance(values, dict):
            raise _Refused(f"expected sections such as model:, data:, training: at the top, not {_kind(values)}")
    except _Refused as error:
        problems.append(Problem(str(error), path, error.line))
        return None
    problems += [Problem(message, path, line) for message, line in reader.faults]
    return YamlTree(values, reader.lines)


def parse_value(text: str) -> tuple[Any, list[KeyPath]]:
    """The value of a `--set key=text`, and the paths inside it; ValueError with the reason where it is no YAML."""
    reader = _Reader()
    try:
        value = reader.read(text)
    except _Refused as error:
        raise ValueError(str(error)) from None
    if reader.faults:
        raise ValueError("; ".join(message for message, _ in reader.faults))
    return value, list(reader.lines)


def _kind(value: Any) -> str:
    return "a list" if isinstance(value, list) else f"a single value ({str(value)[:40]!r})"


class _Reader:
    """Turns composed nodes into values; collects what is wrong with single keys and goes on."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self.faults: list[tuple[str, int]] = []
        self._open: set[int] = set()
        self._count = 0

    def read(self, text: str) -> Any:
        """The value of the whole text, None where it is empty."""
        try:
            node = yaml.compose(text, Loader=_Loader)
            return None if node is None else self._value(node, ())
        except yaml.MarkedYAMLError as error:
            raise _Refused(_syntax_message(error), error.problem_mark or error.context_mark) from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            raise _Refused(f"not text: character {error.character!r} in line {line}") from None
        except RecursionError:
            raise _Refused("nested too deeply") from None

    def _value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise _Refused(f"more than {MAX_VALUES} values once anchors are expanded", node.start_mark)
        if id(node) in self._open:
            raise _Refused("an anchor contains itself", node.start_mark)
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
                return self._mapping(node, path)
            if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
                return self._sequence(node, path)
        finally:
            self._open.discard(id(node))
        raise _Refused(f"tag {node.tag} has no meaning here", node.start_mark)

    def _sequence(self, node: yaml.SequenceNode, path: KeyPath) -> list[Any]:
        values = []
        for position, item in enumerate(node.value):
            here = (*path, str(position))
            self.lines[here] = item.start_mark.line + 1
            values.append(self._value(item, here))
        return values

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        values: dict[str, Any] = {}
        own_lines: dict[str, int] = {}
        merged = [value for key, value in node.value if key.tag == "tag:yaml.org,2002:merge"]
        for value in merged:
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    raise _Refused("<<: needs a mapping, as in <<: *name", value.start_mark)
                values = {**self._value(source, path), **values}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode) or key_node.tag != "tag:yaml.org,2002:str":
                text = str(key_node.value)[:40] if isinstance(key_node, yaml.ScalarNode) else _kind([])
                self.faults.append((f"a key must be a name, not {text}", line))
                continue
            key = key_node.value
            here = (*path, key)
            if key in own_lines:
                lines = f"{own_lines[key]} and {line}"
                self.faults.append((f"key {show_key('.'.join(here))} is given twice, in lines {lines}; keep one", line))
                continue
            own_lines[key] = self.lines[here] = line
            values[key] = self._value(value_node, here)
        return values

    def _scalar(self, node: yaml.ScalarNode) -> Any:
        tag = node.tag.rpartition(":")[2] if node.tag.startswith("tag:yaml.org,2002:") else node.tag
        text = node.value
        try:
            if tag == "str":
                return text
            if tag == "null":
                return None
            if tag == "bool":
                return {"true": True, "false": False}[text.lower()]
            if tag == "int":
                number = int(text[:80].replace("_", ""), 0)
                if abs(number) >= 1 << 63:
                    raise _Refused(f"the number {text[:40]} does not fit in 64 bits", node.start_mark)
                return number
            if tag == "float":
                return float(re.sub(r"\.(?=inf|nan)", "", text.lower()))
        except (ValueError, KeyError):
            raise _Refused(f"{text[:40]!r} is not of the type !!{tag}", node.start_mark) from None
        raise _Refused(f"tag {node.tag} has no meaning here", node.start_mark)


def _syntax_message(error: yaml.MarkedYAMLError) -> str:
    """PyYAML's finding, and what to do in the cases that people meet."""
    finding = error.problem or error.context or "not YAML"
    if "'\\t'" in finding:
        return "a tab where YAML needs spaces; indent with spaces"
    if "mapping values are not allowed" in finding:
        return "a second ': ' in one value; quote the text, or check the indentation"
    if "expected a single document" in str(error):
        return "a second document starts here ('---'); a configuration is one document"
    return f"not YAML: {finding}"
