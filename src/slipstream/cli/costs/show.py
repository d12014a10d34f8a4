"""`slipstream costs show COSTS`: print a cost file."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show_json
from slipstream.cli.common import show as show_text

CostsArgument = Annotated[
    str,
    typer.Argument(
        metavar="COSTS", help="Cost file (.pb or .pbtxt), or a folder of <fingerprint>.pb."
    ),
]
DEFAULT_TOP = 20


def show(
    costs: CostsArgument,
    top: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of rows to print.")
    ] = DEFAULT_TOP,
    json: JsonOption = False,
) -> None:
    """Print a cost file and its manifest, the highest costs first."""
    from slipstream.costs.files import read_costs
    from slipstream.outputs.terminal.costs import render_table, table_json

    table = read_costs(costs)
    if json:
        return show_json(table_json(table, None))
    show_text(lambda width: render_table(table, width, top))
