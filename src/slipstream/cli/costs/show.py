"""`slipstream costs show COSTS`: what a cost file says."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show_json
from slipstream.cli.common import show as show_text

CostsArgument = Annotated[
    str, typer.Argument(metavar="COSTS", help="A .pb, a .pbtxt, or a folder of <fingerprint>.pb.")
]
DEFAULT_TOP = 20


def show(
    costs: CostsArgument,
    top: Annotated[int, typer.Option(metavar="N", min=1, help="How many rows.")] = DEFAULT_TOP,
    json: JsonOption = False,
) -> None:
    """What a cost file says, dearest first, and what its manifest says of it."""
    from slipstream.costs.files import read_costs
    from slipstream.outputs.terminal.costs import render_table, table_json

    table = read_costs(costs)
    if json:
        return show_json(table_json(table, None))
    show_text(lambda width: render_table(table, width, top))
