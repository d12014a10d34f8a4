"""`slipstream summary`: where the step went, on one screen."""

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
    """Where the step went, on one screen.

    The median step of the hottest program: compute, communication and copies that nothing hides,
    idle time, the phases, and what takes most time.
    """
    from slipstream.analyses.summary import summary as analyse

    result = analyse(open_profile(path, run, dumps))
    if json:
        from slipstream.outputs.json import summary_json

        return show_json(summary_json(result))
    from slipstream.outputs.terminal.summary import render_summary

    show(lambda width: render_summary(result, width))
