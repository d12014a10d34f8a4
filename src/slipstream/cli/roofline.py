"""`slipstream roofline`: how near each op is to what the hardware allows, and MFU."""

from __future__ import annotations

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


def roofline(
    path: PathArgument,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """How near each op is to what the hardware allows, and the step's MFU.

    Floating-point operations and bytes are counted from the program; peaks are those of the GPU's
    model. What would win most at the roof comes first.
    """
    # Loaded while the profile is being read.
    from slipstream.analyses.roofline import roofline as analyse
    from slipstream.outputs.terminal.roofline import render_roofline, roofline_json

    result = analyse(open_profile(path, run, dumps))
    if json:
        return show_json(roofline_json(result, top))
    show(lambda width: render_roofline(result, width, top or DEFAULT_TOP))
