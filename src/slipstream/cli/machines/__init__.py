"""`slipstream machines`: GPUs, how they are wired, and what was measured on them."""

from __future__ import annotations

import typer

from slipstream.cli.machines import calibrate, list, show

machines = typer.Typer(
    help="GPUs, how they are wired, and what was measured on them.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
machines.command(name="list")(list.list_machines)
for _command in (show.show, calibrate.calibrate):
    machines.command()(_command)
