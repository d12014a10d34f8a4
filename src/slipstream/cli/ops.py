"""`slipstream ops`: device time by instruction, or by another grouping."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import (
    DumpsOption,
    JsonOption,
    PathArgument,
    RunOption,
    TopOption,
    WholeOption,
    open_profile,
    show,
    show_json,
)
from slipstream.did_you_mean import no_such
from slipstream.errors import BadInput

DEFAULT_TOP = 20


def ops(
    path: PathArgument,
    by: Annotated[
        str,
        typer.Option(
            metavar="GROUPING",
            help="Group by instruction, category, phase, scope, source or kernel.",
        ),
    ] = "instruction",
    top: TopOption = None,
    whole: WholeOption = False,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Show device time by instruction, scope, phase or source line.

    The longest come first. Times are per step; with --all, for the whole recording. Shares are of
    all device time.
    """
    # Loaded while the profile is being read.
    from slipstream.analyses.ops import GROUPINGS
    from slipstream.analyses.ops import ops as analyse
    from slipstream.outputs.json import ops_json

    if by not in GROUPINGS:
        raise BadInput(no_such("grouping", by, GROUPINGS))
    profile = open_profile(path, run, dumps)
    result = analyse(profile, by=by, whole=whole)
    if json:
        return show_json(ops_json(result, top))
    from slipstream.outputs.terminal.ops import render_ops

    show(lambda width: render_ops(result, width, top or DEFAULT_TOP))
