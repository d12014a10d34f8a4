"""`slipstream flags thresholds PROGRAM`: combine thresholds for a model."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json


def thresholds(
    program: Annotated[
        str,
        typer.Argument(metavar="PROGRAM", help="Compiled training step: HLO text or proto."),
    ],
    json: JsonOption = False,
) -> None:
    """Derive combine thresholds from the size of a layer.

    All-gather and reduce-scatter get one value each, large enough for a layer; for all-reduce it
    lists values worth trying. In Python, thresholds_of_params takes a parameter tree.
    """
    from slipstream.flags.thresholds.thresholds import thresholds as find
    from slipstream.outputs.terminal.flags.thresholds import render_thresholds, thresholds_json
    from slipstream.sources.hlo.reader import read_program

    found = find(read_program(program))
    if json:
        return show_json(thresholds_json(found))
    show(lambda width: render_thresholds(found, width))
