"""The command line, as Typer builds it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any

import typer

from slipstream.cli.command_tree import asked_command, command_at, command_tree
from slipstream.cli.common import show_json
from slipstream.cli.group import CommandGroup
from slipstream.cli.main import COMMANDS, TAGLINE


class RootGroup(CommandGroup):
    """All commands, in the order of `COMMANDS`; Typer would list groups last."""

    def list_commands(self, ctx: Any) -> list[str]:
        known = list(COMMANDS)
        names = super().list_commands(ctx)
        return sorted(names, key=lambda name: known.index(name) if name in known else len(known))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print `[COMMAND] --help --json` here: groups, and some commands, have no `--json`."""
        names = asked_command(args)
        command = None if names is None else command_at(self, names)
        if names is not None and command is not None:
            show_json(command_tree(command, ["slipstream", *names]))
            ctx.exit()
        return super().parse_args(ctx, args)


def build_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """The command line with some of its commands: building all takes longer than most run."""
    app = typer.Typer(
        name="slipstream",
        cls=RootGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(help=TAGLINE)(slipstream)
    for name in names:
        about = COMMANDS[name]
        module = import_module(f"slipstream.cli.{about.module_of(name)}")
        command = getattr(module, name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name, rich_help_panel=about.group)
        else:
            app.command(rich_help_panel=about.group)(command)
    return app


def _print_version(is_wanted: bool) -> None:
    if is_wanted:
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
    """The whole command; `TAGLINE` is its help."""
