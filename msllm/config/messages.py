"""What is wrong with one value, in words that name the value, the rule and the legal values."""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable, Mapping
from typing import Any, Union, get_args, get_origin

from pydantic_core import ErrorDetails

from msllm.config.sections import Section
from msllm.config.yaml_text import KeyPath, show_key

_TYPE_NAMES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "string_type": "text",
    "tuple_type": "a list",
    "model_type": "a mapping of keys",
    "model_attributes_type": "a mapping of keys",
}
_BOUNDS = {
    "greater_than": ("greater than", "gt"),
    "greater_than_equal": ("at least", "ge"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}
# Keys of MindFormers' blocks of these names that have no field here, and what to do about them.
_MINDFORMERS_KEYS = {
    "parallel_config": {
        "context_parallel_algo": "remove it, context_parallel is not built yet",
        "ulysses_degree_in_cp": "remove it, context_parallel is not built yet",
        "seq_split_num": "remove it, sequences are not split in the pipeline",
        "optimizer_shard": "remove it and set enable_parallel_optimizer",
        "mem_coeff": "remove it, it belongs to MindSpore's automatic search",
    },
    "recompute_config": {
        "mp_comm_recompute": "remove it, the communication of a recomputed layer is done again, as with true",
        "parallel_optimizer_comm_recompute": "remove it, weights that were gathered are kept, as with false",
        "recompute_slice_activation": "remove it, what a recomputed layer keeps is not cut further, as with false",
        "select_comm_recompute": "remove it, no communication is picked out to be done again, as with false",
        "select_recompute_exclude": "remove it, a recomputed layer is recomputed as a whole, as with false",
        "select_comm_recompute_exclude": "remove it, a recomputed layer is recomputed as a whole, as with false",
    },
}


def show_value(value: Any) -> str:
    """A value as YAML writes it, cut to a length that fits a message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def nearest(name: str, legal: Iterable[str]) -> str:
    """`did you mean X?` where a legal name is close, else the list of them."""
    names = sorted(legal)
    close = [other for other in names if other.lower() == name.lower()]
    close += difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"legal: {', '.join(names)}"


def nested_section(owner: type[Section], key: str) -> type[Section] | None:
    """The class of a field that is itself a group of keys, as training.loss_scale."""
    field = owner.model_fields.get(key)
    annotation = field.annotation if field else None
    candidates = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, Section)), None)


def unknown_key(path: KeyPath, owner: type[Section], sections: Mapping[str, type[Section]]) -> str:
    """Message for a key that its section does not have: where it belongs, or the nearest legal name."""
    key, place = path[-1], ".".join(path[:-1])
    message = f"unknown key {show_key(key)} in {place}; "
    if key in _MINDFORMERS_KEYS.get(path[0], {}):
        return f"{message}MindFormers has it, this version does not: {_MINDFORMERS_KEYS[path[0]][key]}"
    others = {field: name for name, section in sections.items() if name != path[0] for field in section.model_fields}
    if key in others:
        return f"{message}it belongs in {others[key]}:"
    close = difflib.get_close_matches(key, [*owner.model_fields, *others], n=1)
    if close and close[0] not in owner.model_fields:
        return f"{message}did you mean {others[close[0]]}.{close[0]}?"
    return message + nearest(key, owner.model_fields)


def explain(error: ErrorDetails, section: str, owner: type[Section], sections: Mapping[str, type[Section]]) -> str:
    """One of pydantic's findings about section `section` of class `owner`, in our words."""
    path = (section, *(str(part) for part in error["loc"]))
    name, kind, given = ".".join(path), error["type"], error["input"]
    inner = owner
    for part in path[1:-1]:
        inner = nested_section(inner, part) or inner
    if kind == "extra_forbidden":
        return unknown_key(path, inner, sections)
    if kind == "missing" and not isinstance(error["loc"][-1], int):
        return f"{name} is required: {inner.model_fields[path[-1]].description}"
    if kind in ("missing", "too_long"):
        list_name = name if kind == "too_long" else ".".join(path[:-1])
        return f"{list_name} ({show_value(given)}) has the wrong number of values"
    if kind in _TYPE_NAMES:
        return f"{name} must be {_TYPE_NAMES[kind]}, not {show_value(given)}{_type_hint(kind, given)}"
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        bound = error["ctx"][key]
        shown = f"{bound:g}" if isinstance(bound, float) else bound
        return f"{name} ({show_value(given)}) must be {words} {shown}"
    if kind == "literal_error":
        return (
            f"{name} ({show_value(given)}) must be one of {_choices(inner, path[-1])}{_closest(given, inner, path[-1])}"
        )
    return f"{name} ({show_value(given)}): {error['msg']}"


def _type_hint(kind: str, given: Any) -> str:
    if kind == "int_type" and isinstance(given, float) and given.is_integer() and abs(given) < 1 << 63:
        return f"; write {int(given)}"
    if kind == "string_type" and isinstance(given, (int, float)) and not isinstance(given, bool):
        return "; put it in quotes"
    if kind in ("int_type", "float_type") and isinstance(given, str) and _is_number(given):
        return "; write it without quotes" if kind == "float_type" or given.isdigit() else ""
    if kind == "bool_type" and isinstance(given, str) and given.lower() in ("yes", "no", "on", "off"):
        return f"; write {str(given.lower() in ('yes', 'on')).lower()}"
    return ""


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _literals(owner: type[Section], key: str) -> tuple[Any, ...]:
    field = owner.model_fields.get(key)
    return get_args(field.annotation) if field else ()


def _choices(owner: type[Section], key: str) -> str:
    return ", ".join(str(choice) for choice in _literals(owner, key))


def _closest(given: Any, owner: type[Section], key: str) -> str:
    close = difflib.get_close_matches(str(given), [str(c) for c in _literals(owner, key)], n=1)
    return f"; did you mean {close[0]}?" if close else ""
