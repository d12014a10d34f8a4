"""`slipstream slack`: how much later collectives and copies could run."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import (
    DumpsOption,
    JsonOption,
    PathArgument,
    RunOption,
    TopOption,
    open_profile,
    show,
    show_json,
)

DEFAULT_TOP = 20


def slack(
    path: PathArgument,
    step: Annotated[
        int | None, typer.Option(metavar="N", help="Which step.  [default: the median one]")
    ] = None,
    device: Annotated[
        int, typer.Option(metavar="N", min=0, help="Which device, counted over all hosts.")
    ] = 0,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """How much later each collective and copy could run without delaying the step.

    Those without slack come first, with what can't wait for them and what they wait for. One step
    of one device: the one of median length, unless --step names another.
    """
    # Loaded while the profile is being read.
    from slipstream.analyses.slack import slack as analyse
    from slipstream.outputs.terminal.slack import render_slack, slack_json

    result = analyse(open_profile(path, run, dumps), step=step, device=device)
    if json:
        return show_json(slack_json(result, top))
    show(lambda width: render_slack(result, width, top or DEFAULT_TOP))
