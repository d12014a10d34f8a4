"""`slipstream collectives`: what communication moves, how fast, and who waits for whom."""

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


def collectives(
    path: PathArgument,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """What communication moves, how fast, and who waits for whom.

    Bus bandwidth is against the GPU's link to its neighbours, one direction. With recordings of
    several processes (a folder of them), waiting for the last to come is told from moving bytes.
    """
    # Loaded while the profile is being read.
    from slipstream.analyses.collectives import collectives as analyse
    from slipstream.outputs.terminal.collectives import collectives_json, render_collectives

    result = analyse(open_profile(path, run, dumps))
    if json:
        return show_json(collectives_json(result, top))
    show(lambda width: render_collectives(result, width, top or DEFAULT_TOP))
