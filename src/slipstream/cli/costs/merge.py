"""`slipstream costs merge COSTS… -o OUT`: several runs or hosts as one."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import echo


def merge(
    costs: Annotated[
        list[str], typer.Argument(metavar="COSTS...", help="Cost files of the same programs.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="A .pb, .pbtxt or folder.")
    ],
) -> None:
    """Join the costs of several runs or hosts.

    Collectives take the least of all hosts: the others waited for a peer.
    """
    from slipstream.costs.files import read_costs
    from slipstream.costs.merge import merge_costs
    from slipstream.outputs.terminal.costs import extracted_lines

    table = merge_costs([read_costs(file) for file in costs])
    echo("\n".join(extracted_lines(table, None, table.write(output))))
