"""`slipstream tune`: settings that pay, found by search; `tune TARGET` is `tune start TARGET`."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from slipstream.cli.tune import apply, resume, show, start


class _StartsByDefault(TyperGroup):
    """What is no subcommand is a target."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["start", *args]
        return super().parse_args(ctx, args)


tune = typer.Typer(
    cls=_StartsByDefault,
    help="Find the settings that pay. `tune TARGET …` is `tune start TARGET …`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for _command in (start.start, resume.resume, show.show, apply.apply):
    tune.command()(_command)
