"""`slipstream overlap`: which communication and copies the step waits for."""

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


def overlap(
    path: PathArgument,
    whole: Annotated[
        bool, typer.Option("--all", help="Count the whole recording, not only the steps.")
    ] = False,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Which collectives and copies the step waits for, and what hid the others.

    A collective is exposed while nothing computes; a copy, while nothing computes or communicates.
    Times are of one step; with --all, of the whole recording.
    """
    # Loaded while the profile is being read.
    from slipstream.analyses.overlap import overlap as analyse
    from slipstream.outputs.terminal.overlap import overlap_json, render_overlap

    result = analyse(open_profile(path, run, dumps), whole=whole)
    if json:
        return show_json(overlap_json(result, top))
    show(lambda width: render_overlap(result, width, top or DEFAULT_TOP))
