"""`slipstream plan`: which program to run on a machine."""

from __future__ import annotations

import typer

from slipstream.cli.group import CommandGroup
from slipstream.cli.plan import measure, resume, show, start


class PlanGroup(CommandGroup):
    """`slipstream plan TARGET` means `slipstream plan start TARGET`."""

    default = "start"


plan = typer.Typer(
    cls=PlanGroup,
    help="Choose the layout, batch and remat of a model for a machine.\n\n"
    "`slipstream plan TARGET …` is short for `slipstream plan start TARGET …`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for _command in (start.start, resume.resume, measure.measure, show.show):
    plan.command()(_command)
