"""`slipstream costs`: measured costs for XLA's scheduler (PGLE)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slipstream.cli.common import (
    DumpsOption,
    JsonOption,
    RunOption,
    echo,
    open_profile,
    show,
    show_json,
    with_tables,
)
from slipstream.cli.group import CommandGroup
from slipstream.cli.profiles.fleets import FleetOption, JobsOption, RayOption, open_fleet
from slipstream.errors import BadInput, CheckFailed

if TYPE_CHECKING:
    from slipstream.costs.coverage import Coverage

CostsArgument = Annotated[
    str,
    typer.Argument(
        metavar="COSTS", help="Cost file (.pb or .pbtxt), or a folder of <fingerprint>.pb."
    ),
]
DEFAULT_TOP = 20
_PROGRAM_SUFFIXES = (".hlo", ".txt", ".hlo.pb", ".hlo.gz", ".txt.gz", ".hlo.pb.gz")


class CostsGroup(CommandGroup):
    """`slipstream costs PROFILE -o OUT` means `slipstream costs extract PROFILE -o OUT`."""

    default = "extract"

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            paths = error.ctx.params.get("paths") if error.ctx is not None else None
            if not paths or error.param is None or error.param.name != "output":
                raise
            raise BadInput(
                "costs writes a file and needs its name; type: "
                f"slipstream costs {shlex.join(paths)} -o costs.pb"
            ) from None


costs = typer.Typer(
    cls=CostsGroup,
    help="Extract, check and merge measured costs for XLA's scheduler.\n\n"
    "`slipstream costs PROFILE -o OUT` is short for `slipstream costs extract PROFILE -o OUT`. "
    "XLA uses such costs for profile-guided latency estimation (PGLE).",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@costs.command()
def extract(
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...",
            help="Profile: a folder or .xplane.pb written by JAX's profiler, an Nsight Systems "
            ".sqlite or .nsys-rep, or an nsys-jax .zip; or its URL. The costs of several are "
            "merged.",
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            help="File (.pb or .pbtxt), or a folder for XLA to search.",
        ),
    ],
    policy: Annotated[
        str,
        typer.Option(
            metavar="POLICY",
            help="Statistic: typical, percentile:N, max-communication or jax (docs/costs.md).",
        ),
    ] = "typical",
    run: RunOption = None,
    dumps: DumpsOption = None,
    fleet: FleetOption = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    json: JsonOption = False,
) -> None:
    """Extract instruction costs from profiles, for XLA's scheduler.

    Costs of several profiles are merged: a collective gets its shortest time of all, because the
    others waited for a peer. A manifest (.json) beside each file records where the costs come
    from. A file that would match no instruction is not written.
    """
    found = (
        open_fleet(paths[0], run, dumps, fleet, jobs, ray, costs=True) if len(paths) == 1 else None
    )
    from slipstream.costs.coverage import check_profile
    from slipstream.costs.extract import extract_costs

    if found is not None:
        table = found.costs(policy)
        profile = open_profile(found.typical.source, dumps=dumps)
    else:
        profile = open_profile(paths[0], run, dumps)
        table = extract_costs(profile, policy)
    if len(paths) > 1:
        from slipstream.costs.merge import merge_costs

        others = (open_profile(path, run, dumps) for path in paths[1:])
        table = merge_costs([table, *(extract_costs(other, policy) for other in others)])
    files = table.write(output)
    known = any(program.looked_up is not None for program in table.programs)
    coverage = check_profile(table, profile) if known else None
    if json:
        from slipstream.outputs.terminal.costs import table_json

        return show_json({"files": files, **table_json(table, coverage)}, output)
    from slipstream.outputs.terminal.costs import extracted_lines

    echo("\n".join(extracted_lines(table, coverage, files)), output)


@costs.command("show")
@with_tables
def show_costs(
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
    show(lambda width: render_table(table, width, top))


@costs.command()
@with_tables
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
    is_profile = ".xplane.pb" in against or not against.endswith((*_PROGRAM_SUFFIXES, ".pb"))
    if is_profile:
        return check_profile(table, open_profile(against))
    from slipstream.sources.hlo.reader import read_program

    return check_program(table, read_program(against), device)


@costs.command()
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
    echo("\n".join(extracted_lines(table, None, table.write(output))), output)


@costs.command()
@with_tables
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
