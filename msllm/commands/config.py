"""`msllm config`: look at a configuration before anything runs."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from msllm.commands.options import AsJson, ConfigFiles, Overrides, ParallelFile, load_from_options, print_json

app = typer.Typer(help="Show, describe and import configurations.", no_args_is_help=True)


class Language(str, Enum):
    """Languages of the reference tables."""

    en = "en"
    cn = "cn"


@app.command()
def show(
    config: ConfigFiles,
    parallel: ParallelFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Print the resolved configuration and where each value comes from; stop with every fault if there is one.

    Example: msllm config show -c models/llama/configs/llama_tiny.yaml --set optimizer.learning_rate=3e-4
    """
    from msllm.config.messages import show_value

    loaded = load_from_options(config, parallel, overrides)
    if as_json:
        origins = {path: str(origin) for path, _, origin in loaded.rows()}
        print_json({"config": loaded.config.to_dict(), "origins": origins})
        return
    rows = [(*path.split(".", 1), show_value(value), str(origin)) for path, value, origin in loaded.rows()]
    widths = [max(len(row[column]) for row in rows) for column in (1, 2)]
    shown = None
    for section, key, value, origin in rows:
        if section != shown:
            typer.secho(f"{section}:", bold=True)
            shown = section
        typer.echo(f"  {key:<{widths[0]}}  {value:<{widths[1]}}  {origin}")


@app.command()
def schema(
    output: Annotated[Path | None, typer.Option(help="File to write; stdout where it is left out.")] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="The reference tables instead of JSON Schema.")] = False,
    language: Annotated[Language, typer.Option(help="Language of the reference tables.")] = Language.en,
) -> None:
    """Write the JSON Schema of configuration files, which lets an editor complete and check keys.

    Example: msllm config schema --output msllm/config/schema.json
    """
    from msllm.config import schema as schemas
    from msllm.files import write_atomic
    from msllm.registry import MODEL_CONFIGS

    if markdown:
        text = schemas.markdown(MODEL_CONFIGS, language.value)
    else:
        text = schemas.json_schema_text(MODEL_CONFIGS)
    if output is None:
        typer.echo(text, nl=False)
    else:
        write_atomic(output, text)
        typer.echo(f"wrote {output}")


@app.command()
def import_mindformers(
    file: Annotated[Path, typer.Argument(help="YAML of MindFormers 1.x, whole or a part of one.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="File to write; must not exist.")],
    as_json: AsJson = False,
) -> None:
    """Turn a MindFormers YAML into a configuration, and list what was not carried over and why.

    Carries over parallel_config, parallel, recompute_config, runner_config, runner_wrapper, optimizer, lr_schedule and the
    model_config of Llama.

    Example: msllm config import-mindformers pretrain_llama2_7b.yaml --output my.yaml
    """
    from msllm.config.mindformers import import_mindformers as convert
    from msllm.registry import MODEL_CONFIGS

    imported = convert(file, output, MODEL_CONFIGS)
    if as_json:
        print_json(
            {
                "output": str(output),
                "config": imported.values,
                "origins": imported.notes,
                "differences": imported.differences,
                "not_carried_over": imported.dropped,
                "still_needed": imported.missing,
            }
        )
        return
    count = sum(len(keys) for keys in imported.values.values())
    typer.echo(f"wrote {output} with {count} {'value' if count == 1 else 'values'}")
    _list("Carried over, but not the same as in MindFormers:", imported.differences)
    _list("Not carried over:", [f"{', '.join(paths)}: {reason}" for reason, paths in imported.dropped.items()])
    _list(f"Still to do in {output} before it is a whole configuration:", imported.missing)


def _list(title: str, lines: list[str]) -> None:
    if lines:
        typer.secho(title, bold=True)
        for line in lines:
            typer.echo(f"  - {line}")
