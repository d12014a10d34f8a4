"""The `slipstream` command.  Commands import what they need when they run: help is instant."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from typing import Annotated

import typer

from slipstream.cli import doctor, export, ops, programs, query, summary
from slipstream.cli.costs import costs
from slipstream.errors import SlipstreamError

app = typer.Typer(
    name="slipstream",
    help="Reads profiles of JAX programs on GPUs and shows where the step's time went.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"slipstream {version('slipstream')}")
        except PackageNotFoundError:
            typer.echo("slipstream, not installed as a package")
        raise typer.Exit()


@app.callback()
def slipstream(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Reads profiles of JAX programs on GPUs and shows where the step's time went."""


for _command in (
    summary.summary,
    ops.ops,
    programs.programs,
    export.export,
    query.query,
    doctor.doctor,
):
    app.command()(_command)
app.add_typer(costs, name="costs")


def main() -> None:
    """Runs the command line and ends the process."""
    # A terminal that can't show `µ` gets `?`, not a traceback.
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    # A command lives for a second or so and makes few cycles: collecting them is wasted time.
    gc.set_threshold(200_000)
    code = _run()
    for stream in (sys.stdout, sys.stderr):
        with suppress(BrokenPipeError, ValueError):
            stream.flush()
    # The system takes memory back at once; Python would give it back piece by piece.
    os._exit(code)


def _run() -> int:
    """The exit code; the only place where errors become one (see `errors`)."""
    try:
        app(prog_name="slipstream")
    except SlipstreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0 if done.code is None else 1
    return 0
