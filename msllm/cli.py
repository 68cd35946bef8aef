"""The command `msllm`: puts the command groups together and turns errors into messages and exit codes.

Exit codes: 0 fine, 1 the run failed, 2 the input is wrong, 130 stopped with Ctrl-C. Importing this module imports no
MindSpore; commands import what they need when they run.
"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from msllm import __version__
from msllm.commands import bench, check, config, data, evaluate, generate, ranktable, train, weights
from msllm.errors import InputError, MsllmError

app = typer.Typer(
    name="msllm",
    help="Train large language models with MindSpore on Ascend NPUs, rehearsed on a laptop.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"msllm {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Train large language models with MindSpore on Ascend NPUs, rehearsed on a laptop."""


app.add_typer(config.app, name="config")
app.add_typer(data.app, name="data")
app.command("check")(check.check)
app.command("train")(train.train)
app.command("evaluate")(evaluate.evaluate)
app.command("generate")(generate.generate)
app.add_typer(weights.app, name="weights")
app.add_typer(bench.app, name="bench")
app.add_typer(ranktable.app, name="ranktable")


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except InputError as error:
        _report([str(problem) for problem in error.problems])
        sys.exit(error.exit_code)
    except MsllmError as error:
        _report([str(error)])
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _report(["stopped by Ctrl-C"])
        sys.exit(130)
    except OSError as error:
        what = error.strerror or str(error)
        _report([f"{error.filename}: {what}" if error.filename else what])
        sys.exit(1)


def _report(messages: list[str]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    for message in messages:
        # Text, not a string: what a user wrote may hold [brackets], which rich would take for markup.
        console.print(Text.assemble(("error: ", "bold red"), message))
