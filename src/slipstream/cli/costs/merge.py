"""`slipstream costs merge COSTS… -o OUT`: merge costs of several runs or hosts."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import echo


def merge(
    costs: Annotated[
        list[str], typer.Argument(metavar="COSTS...", help="Cost files of the same programs.")
    ],
    output: Annotated[
        str, typer.Option("--output", "-o", metavar="OUT", help="File (.pb or .pbtxt) or folder.")
    ],
) -> None:
    """Merge the costs of several runs or hosts.

    A collective gets its shortest time of all hosts, because the other hosts waited for a peer.
    """
    from slipstream.costs.files import read_costs
    from slipstream.costs.merge import merge_costs
    from slipstream.outputs.terminal.costs import extracted_lines

    table = merge_costs([read_costs(file) for file in costs])
    echo("\n".join(extracted_lines(table, None, table.write(output))))
