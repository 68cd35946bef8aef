"""The JSON Schema and the reference pages say what the sections say."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from msllm.config.fields_cn import FIELDS_CN
from msllm.config.schema import json_schema, json_schema_text, markdown
from msllm.config.yaml_text import parse_value
from msllm.registry import MODEL_CONFIGS

ROOT = Path(__file__).parents[3]
SHIPPED = sorted([*ROOT.glob("models/*/configs/*.yaml"), *ROOT.glob("parallel_configs/*.yaml")])


def errors(text: str) -> list[str]:
    """What an editor underlines in a YAML text."""
    validator = jsonschema.Draft7Validator(json_schema(MODEL_CONFIGS))
    return sorted(error.message for error in validator.iter_errors(parse_value(text)[0]))


def test_the_schema_is_a_valid_one():
    jsonschema.Draft7Validator.check_schema(json_schema(MODEL_CONFIGS))


def test_the_committed_schema_is_up_to_date():
    committed = (ROOT / "msllm/config/schema.json").read_text()
    assert committed == json_schema_text(MODEL_CONFIGS), "run: msllm config schema --output msllm/config/schema.json"


@pytest.mark.parametrize(("page", "language"), [("configuration.md", "en"), ("configuration_CN.md", "cn")])
def test_the_reference_pages_are_up_to_date(page, language):
    _, marker, tables = (ROOT / "docs" / page).read_text().partition(f"--markdown --language {language}`")
    assert marker
    expected = markdown(MODEL_CONFIGS, language)
    assert tables.partition("-->")[2].strip() == expected.strip(), "run: msllm config schema --markdown"


def test_chinese_texts_have_no_field_too_many():
    used = markdown(MODEL_CONFIGS, "cn")
    assert [key for key, text in FIELDS_CN.items() if text not in used] == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_every_shipped_file_names_the_schema_and_satisfies_it(path):
    text = path.read_text()
    first = text.splitlines()[0]
    assert first.startswith("# yaml-language-server: $schema=")
    schema = (path.parent / first.partition("=")[2]).resolve()
    assert schema == ROOT / "msllm/config/schema.json"
    values, _ = parse_value(text)
    jsonschema.Draft7Validator(json.loads(schema.read_text())).validate(values)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimizer: {lerning_rate: 1}", "'lerning_rate' was unexpected"),
        ("trainin: {}", "'trainin' was unexpected"),
        ("training: {train_steps: 0}", "0 is less than or equal to the minimum of 0"),
        ("training: {train_steps: a}", "'a' is not of type 'integer'"),
        ("lr_schedule: {type: cosin}", "'cosin' is not one of"),
        ("optimizer: {betas: [0.9]}", "[0.9] is too short"),
        ("model: {hidden_size: 8}", "'model_type' is a required property"),
        ("model: {model_type: lama}", "'lama' is not one of ['gpt2', 'llama']"),
        ("model: {model_type: gpt2, rope_theta: 1}", "'rope_theta' was unexpected"),
        (
            "model: {model_type: llama, rope_scaling: {rope_type: llama3}}",
            "is not valid under any of the given schemas",
        ),
    ],
)
def test_an_editor_sees_the_fault(text, message):
    found = errors(text)
    assert any(message in error for error in found), found


@pytest.mark.parametrize(
    "text",
    [
        "training: {train_steps: 5}",
        "checkpoint:",
        "training: {loss_scale: {}}",
        "optimizer: {learning_rate: 3e-4, max_grad_norm: null}",
    ],
)
def test_an_editor_accepts_a_part_of_a_configuration(text):
    assert errors(text) == []
