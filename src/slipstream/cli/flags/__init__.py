"""`slipstream flags`: XLA's flags and JAX's environment variables."""

from __future__ import annotations

import typer

from slipstream.cli.flags import diff, explain, lint, list, preset, thresholds
from slipstream.cli.group import CommandGroup

flags = typer.Typer(
    cls=CommandGroup,
    help="List, explain, check and choose XLA flags and JAX variables.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
flags.command(name="list")(list.list_flags)
for _command in (
    explain.explain,
    diff.diff,
    lint.lint,
    preset.preset,
    thresholds.thresholds,
):
    flags.command()(_command)
