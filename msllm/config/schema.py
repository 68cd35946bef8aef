"""The configuration's JSON Schema, for editors, and its reference tables, for people; both made from the sections."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from msllm.config.fields_cn import FIELDS_CN, HEADINGS_CN, SECTIONS_CN
from msllm.config.load import section_classes
from msllm.config.messages import nested_section
from msllm.config.sections import ModelConfig, Section

Language = Literal["en", "cn"]


def json_schema(model_configs: Mapping[str, type[ModelConfig]]) -> dict[str, Any]:
    """JSON Schema (draft 7, which editors know best) of one configuration file.

    A file may hold any part of a configuration, so only what belongs together is required: model_type with `model:`,
    which selects the other keys of that section.
    """
    definitions: dict[str, Any] = {}
    properties: dict[str, Any] = {}
    for name, owner in section_classes().items():
        if name == "model":
            properties[name] = _model_schema(model_configs, definitions)
        else:
            properties[name] = _section_schema(owner, definitions)
            # A section whose keys are all commented out is null.
            properties[name]["type"] = ["object", "null"]
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "msllm configuration",
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        "$defs": definitions,
    }


def json_schema_text(model_configs: Mapping[str, type[ModelConfig]]) -> str:
    """The schema as the committed file holds it."""
    return json.dumps(json_schema(model_configs), indent=2) + "\n"


def markdown(model_configs: Mapping[str, type[ModelConfig]], language: Language = "en") -> str:
    """One table for each section and each model: key, type, default, meaning."""
    headings = HEADINGS_CN if language == "cn" else ("Key", "Type", "Default", "Meaning", "required")
    parts = []
    for name, owner in section_classes().items():
        if name != "model":
            parts.append(_table(name, f"`{name}:`", owner, language, headings))
            continue
        for model_type, model_class in sorted(model_configs.items()):
            parts.append(_table(name, f"`model:` (`model_type: {model_type}`)", model_class, language, headings))
    return "\n".join(parts)


def _section_schema(owner: type[Section], definitions: dict[str, Any], keep_required: bool = False) -> dict[str, Any]:
    schema = _draft7(owner.model_json_schema())
    definitions.update(schema.pop("$defs", {}))
    if not keep_required:
        schema.pop("required", None)
    return schema


def _model_schema(model_configs: Mapping[str, type[ModelConfig]], definitions: dict[str, Any]) -> dict[str, Any]:
    choices = []
    for model_type, owner in sorted(model_configs.items()):
        definitions[owner.__name__] = _section_schema(owner, definitions, keep_required=True)
        choices.append(
            {
                "if": {"properties": {"model_type": {"const": model_type}}, "required": ["model_type"]},
                "then": {"$ref": f"#/$defs/{owner.__name__}"},
            }
        )
    description = ModelConfig.model_fields["model_type"].description
    return {
        "type": "object",
        "required": ["model_type"],
        "properties": {"model_type": {"enum": sorted(model_configs), "description": description}},
        "allOf": choices,
    }


def _draft7(schema: Any) -> Any:
    """Pydantic's draft 2020-12 in draft 7's words, without the titles that repeat every key."""
    if isinstance(schema, list):
        return [_draft7(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    result = {}
    for key, value in schema.items():
        if key == "properties":
            result[key] = {name: _draft7(inner) for name, inner in value.items()}
        elif key == "prefixItems":
            result["items"] = _draft7(value)
        elif not (key == "title" and isinstance(value, str)):
            result[key] = _draft7(value)
    return result


def _table(section: str, title: str, owner: type[Section], language: Language, headings: tuple[str, ...]) -> str:
    summary = SECTIONS_CN[owner.__name__] if language == "cn" else (owner.__doc__ or "").strip().splitlines()[0]
    lines = [f"## {title}", "", summary, "", f"| {' | '.join(headings[:4])} |", "|---|---|---|---|"]
    lines += _rows("", owner, language, headings[4])
    return "\n".join(lines) + "\n"


def _rows(prefix: str, owner: type[Section], language: Language, required: str) -> list[str]:
    schema = owner.model_json_schema()["properties"]
    rows = []
    for key, field in owner.model_fields.items():
        default = required if field.is_required() else f"`{_plain(field.default)}`"
        meaning = FIELDS_CN[f"{_owner_of(owner, key)}.{key}"] if language == "cn" else field.description or ""
        inner = nested_section(owner, key)
        kind = _kind(schema[key]) if inner is None else "mapping" if field.annotation is inner else "mapping, null"
        rows.append(f"| `{prefix}{key}` | {kind} | {default} | {meaning} |")
        if inner is not None:
            rows += _rows(f"{prefix}{key}.", inner, language, required)
    return rows


def _owner_of(owner: type[Section], key: str) -> str:
    """Name of the class that first says what `key` means: a model inherits most of its fields."""
    return next(c.__name__ for c in reversed(owner.__mro__) if key in getattr(c, "__annotations__", {}))


def _plain(default: Any) -> str:
    """A default as YAML writes it; a group of keys, whose own defaults have rows of their own, is {}."""
    if isinstance(default, Section):
        return "{}"
    return json.dumps(list(default) if isinstance(default, tuple) else default).strip('"')


def _kind(schema: dict[str, Any]) -> str:
    """A field's type and range in words: `integer > 0`."""
    if "anyOf" in schema:
        return ", ".join(_kind(option) for option in schema["anyOf"])
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return ", ".join(str(choice) for choice in schema["enum"])
    if schema.get("type") == "array" and "items" in schema:
        return f"list of {_kind(schema['items'])}"
    if schema.get("type") == "array":
        return f"list of {len(schema['prefixItems'])}: {_kind(schema['prefixItems'][0])}"
    words = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    bounds = [f"{sign} {schema[key]}" for key, sign in words.items() if key in schema]
    return " ".join([schema["type"], ", ".join(bounds)]).strip()
