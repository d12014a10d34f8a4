"""`slipstream tune`: search for the flags that make a program faster."""

from __future__ import annotations

import typer

from slipstream.cli.group import CommandGroup
from slipstream.cli.tune import apply, resume, show, start


class TuneGroup(CommandGroup):
    """`slipstream tune TARGET` means `slipstream tune start TARGET`."""

    default = "start"


tune = typer.Typer(
    cls=TuneGroup,
    help="Search for the flags that make a program faster.\n\n"
    "`slipstream tune TARGET …` is short for `slipstream tune start TARGET …`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for _command in (start.start, resume.resume, show.show, apply.apply):
    tune.command()(_command)
