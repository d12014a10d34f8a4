"""What commands share that can read a run host by host: options, and the fleet."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import ProgressBar, note
from slipstream.errors import BadInput

if TYPE_CHECKING:
    from slipstream.analyses.hosts import FleetContext
    from slipstream.fleet.fleet import Fleet
    from slipstream.profile.profile import Profile

FleetOption = Annotated[
    bool | None,
    typer.Option(
        "--fleet/--no-fleet",
        help="Read the run host by host, in bounded memory.  [default: from 1 GB on]",
        show_default=False,
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        metavar="N",
        min=1,
        help="Hosts of a fleet to read at once.  [default: one per core]",
    ),
]
RayOption = Annotated[
    str | None,
    typer.Option(
        "--ray",
        metavar="ADDRESS",
        help="Ray cluster that reads the hosts: auto, HOST:PORT or ray://HOST:PORT.",
    ),
]
HostOption = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="Host of a fleet to show in detail: typical, slowest or its name.  [default: typical]",
    ),
]


def open_fleet(
    path: str,
    run: str | None,
    dumps: str | None,
    fleet: bool | None,
    jobs: int | None,
    ray: str | None,
    *,
    costs: bool = False,
    shows_warnings: bool = False,
) -> Fleet | None:
    """The hosts of a run, read one by one; None if it is to be read as one profile.

    Recordings that could not be read are named on stderr, unless the command shows all warnings.
    """
    from slipstream.fleet.read import is_fleet, read_fleet

    if fleet is False and (jobs is not None or ray is not None):
        raise BadInput("--no-fleet reads everything here, at once; leave out --jobs and --ray")
    if fleet is None and jobs is None and ray is None:
        fleet = is_fleet(path, run)
    if fleet is False:
        return None
    with ProgressBar() as bar:
        found = read_fleet(
            path,
            run,
            jobs=jobs,
            ray=ray,
            dumps=dumps,
            costs=costs,
            progress=bar.update,
            notice=note,
        )
    for one in found.warnings if not shows_warnings else ():
        if one.code in ("not-read", "unread-hosts"):
            print(f"warning: {one.message}", file=sys.stderr)
    return found


def in_detail(fleet: Fleet, host: str | None, dumps: str | None) -> tuple[Profile, FleetContext]:
    """One recording of a fleet as a profile, and what is known of the others."""
    from slipstream.analyses.hosts import FleetContext
    from slipstream.sources.load import load
    from slipstream.units import format_time

    chosen = fleet.recording(host or "typical")
    name = chosen.profile.hosts[0].name
    why = ", whose step is nearest to the median" if chosen is fleet.typical else ""
    late = next(iter(fleet.met.stragglers), None)
    detail = f"{len(fleet.summary.hosts)} hosts; details are those of {name}{why}"
    if late is not None and late.caused_us:
        waits = format_time(late.caused_us * 1e6)
        detail += f"; the others wait most for {late.host}, {waits} per step"
    context = FleetContext(detail, fleet.summary, fleet.hosts, fleet.met_by(chosen))
    return load(chosen.source, dumps=dumps), context
