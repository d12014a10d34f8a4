"""`slipstream flags explain NAME`: all that is known about a flag."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.cli.flags.list import JaxlibOption


def explain(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A flag of XLA, or an environment variable.")
    ],
    jaxlib: JaxlibOption = None,
    json: JsonOption = False,
) -> None:
    """What a flag or variable does, when it helps or hurts, its default and its history."""
    from slipstream.flags.catalogue.catalogue import default_catalogue
    from slipstream.flags.explain import explain as explain_name
    from slipstream.outputs.terminal.flags.catalogue import explanation_json, render_explanation

    found = explain_name(name, default_catalogue(jaxlib))
    if json:
        return show_json(explanation_json(found))
    show(lambda width: render_explanation(found, width))
