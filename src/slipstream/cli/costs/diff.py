"""`slipstream costs diff BEFORE AFTER`: compare two cost files."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.cli.costs.show import DEFAULT_TOP, CostsArgument


def diff(
    before: CostsArgument,
    after: CostsArgument,
    top: Annotated[
        int, typer.Option(metavar="N", min=1, help="Number of rows to print.")
    ] = DEFAULT_TOP,
    json: JsonOption = False,
) -> None:
    """Compare two cost files, the largest change first."""
    from slipstream.costs.diff import diff_costs
    from slipstream.costs.files import read_costs
    from slipstream.outputs.terminal.costs import diff_json, render_diff

    found = diff_costs(read_costs(before), read_costs(after))
    if json:
        return show_json(diff_json(found))
    show(lambda width: render_diff(found, width, top))
