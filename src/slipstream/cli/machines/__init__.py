"""`slipstream machines`: GPUs, how they are connected, and what was measured on them."""

from __future__ import annotations

import typer

from slipstream.cli.group import CommandGroup
from slipstream.cli.machines import calibrate, list, show

machines = typer.Typer(
    cls=CommandGroup,
    help="List, describe and calibrate GPUs and networks.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
machines.command(name="list")(list.list_machines)
for _command in (show.show, calibrate.calibrate):
    machines.command()(_command)
