"""`slipstream costs check COSTS --against PROGRAM|PROFILE`: does a cost file fit a program?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import JsonOption, open_profile, show, show_json
from slipstream.cli.costs.show import CostsArgument
from slipstream.errors import CheckFailed

if TYPE_CHECKING:
    from slipstream.costs.coverage import Coverage

_PROGRAM_ENDINGS = (".hlo", ".txt", ".hlo.pb", ".hlo.gz", ".txt.gz", ".hlo.pb.gz")


def check(
    costs: CostsArgument,
    against: Annotated[
        str,
        typer.Option(metavar="PATH", help="Program (HLO text or proto), or a profile of it."),
    ],
    require: Annotated[
        float,
        typer.Option(metavar="SHARE", min=0, max=1, help="Share of costs that must be found."),
    ] = 0.95,
    device: Annotated[
        str, typer.Option(metavar="NAME", help="GPU that will run it, if PATH is a program.")
    ] = "",
    json: JsonOption = False,
) -> None:
    """Check how much of a program a cost file covers.

    Also shows what XLA's scheduler assumes for the rest. Exits with 1 if less than the required
    share has a cost.
    """
    coverage = _coverage(costs, against, device)
    from slipstream.outputs.terminal.costs import coverage_json, render_coverage

    if json:
        show_json(coverage_json(coverage))
    else:
        show(lambda width: render_coverage(coverage, width))
    if coverage.share < require:
        raise CheckFailed(
            f"{coverage.share:.1%} of the {coverage.basis} has a cost, less than the required "
            f"{require:.0%}; extract costs of this program: slipstream costs PROFILE -o {costs}"
        )


def _coverage(costs: str, against: str, device: str) -> Coverage:
    from slipstream.costs.coverage import check_profile, check_program
    from slipstream.costs.files import read_costs

    table = read_costs(costs)
    is_profile = ".xplane.pb" in against or not against.endswith((*_PROGRAM_ENDINGS, ".pb"))
    if is_profile:
        return check_profile(table, open_profile(against))
    from slipstream.sources.hlo.reader import read_program

    return check_program(table, read_program(against), device)
