"""The command `msllm`: puts the command groups together and turns errors into messages and exit codes.

Exit codes: 0 fine, 1 the run failed, 2 the input is wrong, 130 stopped with Ctrl-C. Importing this module imports no
MindSpore; commands import what they need when they run. With `--json`, an error is a JSON document on stdout too.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from msllm import __version__
from msllm.commands import (
    bench,
    bench_comm,
    check,
    config,
    data,
    doctor,
    evaluate,
    generate,
    launch,
    ranktable,
    rehearse,
    train,
    weights,
)
from msllm.commands.options import print_json
from msllm.errors import InputError, MsllmError, Problem

STOPPED = 130
"""What a shell gives a command that Ctrl-C (SIGINT) ended."""

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
app.add_typer(rehearse.app, name="rehearse")
app.command("train")(train.train)
app.command("launch", context_settings={"allow_extra_args": True})(launch.launch)
app.command("evaluate")(evaluate.evaluate)
app.command("generate")(generate.generate)
app.add_typer(weights.app, name="weights")
bench.app.command("comm")(bench_comm.comm)
app.add_typer(bench.app, name="bench")
app.add_typer(ranktable.app, name="ranktable")
app.add_typer(doctor.app, name="doctor")


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except InputError as error:
        _fail(error.exit_code, error.problems)
    except MsllmError as error:
        _fail(error.exit_code, [Problem(str(error))])
    except KeyboardInterrupt:
        _fail(STOPPED, [Problem("stopped by Ctrl-C")])
    except OSError as error:
        _fail(1, [Problem(error.strerror or str(error), error.filename)])
    except SystemExit as stop:
        # Typer has shown wrong usage itself; it says nothing of Ctrl-C.
        usage = getattr(stop.__context__, "format_message", None)
        if usage is not None:
            _print_error(int(stop.code or 0), [Problem(usage())])
        elif stop.code == STOPPED:
            _fail(STOPPED, [Problem("stopped by Ctrl-C")])
        raise


def _fail(code: int, problems: Sequence[Problem]) -> NoReturn:
    """Say what is wrong, and end the process."""
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, soft_wrap=True, highlight=False)
    for problem in problems:
        # Text, not a string: what a user wrote may hold [brackets], which rich would take for markup.
        console.print(Text.assemble(("error: ", "bold red"), str(problem)))
    _print_error(code, problems)
    sys.exit(code)


def _print_error(code: int, problems: Sequence[Problem]) -> None:
    """The error as the one JSON document that `--json` promises; nothing without `--json`.

    Asked of the arguments themselves, because wrong usage ends a command before its options are read.
    """
    options = sys.argv[1 : sys.argv.index("--")] if "--" in sys.argv else sys.argv[1:]
    if "--json" not in options:
        return
    with suppress(BrokenPipeError):
        print_json({"error": {"exit_code": code, "problems": [problem.to_dict() for problem in problems]}})
