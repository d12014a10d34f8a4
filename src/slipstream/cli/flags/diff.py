"""`slipstream flags diff OLD NEW`: what changed between two jaxlib releases."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json


def diff(
    old: Annotated[str, typer.Argument(metavar="OLD", help="jaxlib release, such as 0.6.0.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="Newer jaxlib release.")],
    json: JsonOption = False,
) -> None:
    """Compare two releases: flags removed, added, new defaults."""
    from slipstream.flags.explain import flag_diff
    from slipstream.outputs.terminal.flags.catalogue import diff_json, render_diff

    found = flag_diff(old, new)
    if json:
        return show_json(diff_json(found))
    show(lambda width: render_diff(found, width))
