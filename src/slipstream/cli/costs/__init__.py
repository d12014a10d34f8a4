"""`slipstream costs`: measured costs for XLA's scheduler (PGLE)."""

from __future__ import annotations

import typer

from slipstream.cli.costs import check, diff, extract, merge, show
from slipstream.cli.group import CommandGroup


class CostsGroup(CommandGroup):
    """`slipstream costs PROFILE -o OUT` means `slipstream costs extract PROFILE -o OUT`."""

    default = "extract"


costs = typer.Typer(
    cls=CostsGroup,
    help="Extract, check and merge measured costs for XLA's scheduler.\n\n"
    "`slipstream costs PROFILE -o OUT` is short for `slipstream costs extract PROFILE -o OUT`. "
    "XLA uses such costs for profile-guided latency estimation (PGLE).",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for _command in (extract.extract, show.show, check.check, merge.merge, diff.diff):
    costs.command()(_command)
