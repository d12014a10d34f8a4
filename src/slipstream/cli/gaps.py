"""`slipstream gaps`: why the device idles."""

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

DEFAULT_TOP = 8


def gaps(
    path: PathArgument,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Idle device time by cause, and the longest gaps.

    The host launches too slowly, feeds input, compiles or does something else; or launched work has
    not begun. Causes come from host events: where none were recorded, they are not known.
    """
    # Loaded while the profile is being read.
    from slipstream.analyses.gaps import gaps as analyse
    from slipstream.outputs.terminal.gaps import gaps_json, render_gaps

    result = analyse(open_profile(path, run, dumps))
    if json:
        return show_json(gaps_json(result, top))
    show(lambda width: render_gaps(result, width, top or DEFAULT_TOP))
