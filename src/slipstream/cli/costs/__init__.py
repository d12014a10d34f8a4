"""`slipstream costs`: costs for XLA's scheduler (PGLE), and what is done with them."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from slipstream.cli.costs import check, diff, extract, merge, show

EXTRACT = "extract"


class CostsGroup(TyperGroup):
    """`slipstream costs PROFILE -o OUT` is `slipstream costs extract PROFILE -o OUT`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = [EXTRACT, *args]
        return super().resolve_command(ctx, args)


costs = typer.Typer(
    cls=CostsGroup,
    help="Costs for XLA's scheduler (PGLE): from a profile, checked against a program.\n\n"
    "`slipstream costs PROFILE -o OUT` makes them; `extract` may be left out.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
for _command in (extract.extract, show.show, check.check, merge.merge, diff.diff):
    costs.command()(_command)
