"""`slipstream machines show SPEC`: one machine, and its collective times."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show_json
from slipstream.cli.common import show as show_text

SpecArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPEC",
        help="Machine: 8xH200, 4x8xH100 (hosts × GPUs), 2x4x8xB200 (slices × hosts × GPUs), or "
        "a .toml file.",
    ),
]


def show(spec: SpecArgument, json: JsonOption = False) -> None:
    """Show a machine: facts, sources, and times of collectives."""
    from slipstream.machines.collectives import overview
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.machines import overview_json, render_overview

    found = overview(machine(spec))
    if json:
        return show_json(overview_json(found))
    show_text(lambda width: render_overview(found, width))
