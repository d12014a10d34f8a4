"""The `slipstream` command.  A command's file is imported when it is called: help is instant."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Annotated, Any

import typer

from slipstream.errors import SlipstreamError

COMMANDS = {
    "summary": "slipstream.cli.summary",
    "ops": "slipstream.cli.ops",
    "programs": "slipstream.cli.programs",
    "costs": "slipstream.cli.costs",
    "export": "slipstream.cli.export",
    "query": "slipstream.cli.query",
    "flags": "slipstream.cli.flags",
    "doctor": "slipstream.cli.doctor",
}
"""Command or group of commands to the module that has it, under the same name."""


def build_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with some commands; all of them are slower to build than most are to run."""
    app = typer.Typer(
        name="slipstream",
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(slipstream)
    for name in names:
        command = getattr(import_module(COMMANDS[name]), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command()(command)
    return app


def __getattr__(name: str) -> Any:
    """`app` is the whole command line, built when somebody asks for it."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()["app"] = build_app()
    return globals()["app"]


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(f"slipstream {version('slipstream')}")
        except PackageNotFoundError:
            typer.echo("slipstream, not installed as a package")
        raise typer.Exit()


def slipstream(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Reads profiles of JAX programs on GPUs and shows where the step's time went."""


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
    called = sys.argv[1] if len(sys.argv) > 1 else ""
    try:
        build_app([called] if called in COMMANDS else COMMANDS)(prog_name="slipstream")
    except SlipstreamError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0 if done.code is None else 1
    return 0
