"""`msllm config`: look at a configuration before anything runs."""

from __future__ import annotations

import typer

from msllm.commands.options import AsJson, ConfigFiles, Overrides, ParallelFile, load_from_options, print_json

app = typer.Typer(help="Show, describe and import configurations.", no_args_is_help=True)


@app.command()
def show(
    config: ConfigFiles,
    parallel: ParallelFile = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Print the resolved configuration, and where each value comes from.

    Example: msllm config show --config models/llama/configs/llama_tiny.yaml --set optimizer.learning_rate=3e-4
    """
    loaded = load_from_options(config, parallel, overrides)
    if as_json:
        origins = {path: str(origin) for path, _, origin in loaded.rows()}
        print_json({"config": loaded.config.to_dict(), "origins": origins})
        return
    from msllm.config.messages import show_value

    rows = [(path, show_value(value), str(origin)) for path, value, origin in loaded.rows()]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    section = ""
    for path, value, origin in rows:
        head = path.partition(".")[0]
        if head != section:
            section = head
            typer.secho(f"{section}:", bold=True)
        typer.echo(f"  {path:<{widths[0]}}  {value:<{widths[1]}}  {origin}")
