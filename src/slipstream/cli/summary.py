"""`slipstream summary`: where the time of a step goes, on one screen."""

from __future__ import annotations

from slipstream.cli.common import (
    DumpsOption,
    JsonOption,
    PathArgument,
    RunOption,
    open_profile,
    show,
    show_json,
)


def summary(
    path: PathArgument, run: RunOption = None, dumps: DumpsOption = None, json: JsonOption = False
) -> None:
    """Show where the time of a step goes, on one screen.

    The median step of the hottest program: compute, exposed communication and copies, idle time,
    the phases, and the ops that take most time.
    """
    from slipstream.analyses.summary import summary as analyse

    result = analyse(open_profile(path, run, dumps, shows_warnings=True))
    if json:
        from slipstream.outputs.json import summary_json

        return show_json(summary_json(result))
    from slipstream.outputs.terminal.summary import render_summary

    show(lambda width: render_summary(result, width))
