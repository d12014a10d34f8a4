"""`slipstream flags`: flags that this jaxlib takes, explained, checked and chosen for the job."""

from __future__ import annotations

import typer

from slipstream.cli.flags import diff, explain, lint, list, preset, thresholds

flags = typer.Typer(
    help="XLA's flags and JAX's variables: listed, explained, checked, chosen for the job.",
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
