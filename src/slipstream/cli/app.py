"""The command line: its commands as Typer builds them."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Annotated

import typer

from slipstream.cli.main import COMMANDS


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
