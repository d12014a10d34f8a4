"""`slipstream flags explain NAME`: describe one flag or variable."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.cli.flags.common import JaxlibOption


def explain(
    name: Annotated[str, typer.Argument(metavar="NAME", help="XLA flag or environment variable.")],
    jaxlib: JaxlibOption = None,
    json: JsonOption = False,
) -> None:
    """Explain a flag: effect, benefits, risks, default, history."""
    from slipstream.flags.catalogue.catalogue import default_catalogue
    from slipstream.flags.explain import explain as explain_name
    from slipstream.outputs.terminal.flags.catalogue import explanation_json, render_explanation

    found = explain_name(name, default_catalogue(jaxlib))
    if json:
        return show_json(explanation_json(found))
    show(lambda width: render_explanation(found, width))
