"""`slipstream memory`: what a program needs of the device's memory, and who makes the peak."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import (
    DumpsOption,
    JsonOption,
    PathArgument,
    RunOption,
    open_profile,
    show,
    show_json,
)

DEFAULT_TOP = 12


def memory(
    path: PathArgument,
    top: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="How many rows.  [default: 12]"),
    ] = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """What each program needs of the device's memory, and who makes the peak.

    Counted from the program: arguments, results, and temporaries from their instruction to their
    last use. The program with the most device time in full, a line for each other.
    """
    # Loaded while the profile is being read.
    from slipstream.analyses.memory import memory as analyse
    from slipstream.outputs.terminal.memory import memory_json, render_memory

    result = analyse(open_profile(path, run, dumps))
    if json:
        return show_json(memory_json(result))
    show(lambda width: render_memory(result, width, top or DEFAULT_TOP))
