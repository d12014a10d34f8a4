"""`slipstream summary`: where the time of a step goes, on one screen."""

from __future__ import annotations

from slipstream.cli.common import (
    DumpsOption,
    FlatOption,
    JsonOption,
    PathArgument,
    RunOption,
    open_profile,
    show,
    show_json,
    with_tables,
)
from slipstream.cli.profiles.fleets import FleetOption, JobsOption, RayOption, open_fleet


@with_tables
def summary(
    path: PathArgument,
    flat: FlatOption = False,
    run: RunOption = None,
    dumps: DumpsOption = None,
    fleet: FleetOption = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    json: JsonOption = False,
) -> None:
    """Show where the time of a step goes, on one screen.

    The median step of the hottest program: compute, exposed communication and copies, idle time,
    the phases, and the ops that take most time. Equal ops of unrolled layers are one line.
    """
    from slipstream.analyses.summary import summary as analyse

    found = open_fleet(path, run, dumps, fleet, jobs, ray, shows_warnings=True)
    if found is not None:
        result = found.summary
    else:
        result = analyse(open_profile(path, run, dumps, shows_warnings=True))
    if json:
        from slipstream.outputs.json import summary_json

        return show_json(summary_json(result))
    from slipstream.outputs.terminal.summary import render_summary

    show(lambda width: render_summary(result, width, flat))
