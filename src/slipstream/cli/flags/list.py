"""`slipstream flags list`: the flags of a jaxlib release."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.cli.flags.common import JaxlibOption
from slipstream.errors import BadInput


def list_flags(
    grep: Annotated[
        str, typer.Option(metavar="PATTERN", help="Only names that match this regular expression.")
    ] = "",
    jaxlib: JaxlibOption = None,
    json: JsonOption = False,
) -> None:
    """List flags: type, default, and where each may be set.

    `both` means XLA_FLAGS and compiler_options. If no jaxlib is installed, the list is that of
    the newest known release.
    """
    from slipstream.flags.catalogue.catalogue import default_catalogue
    from slipstream.outputs.terminal.flags.catalogue import list_json, render_list

    try:
        pattern = re.compile(grep, re.IGNORECASE)
    except re.error as error:
        raise BadInput(
            f"--grep {grep!r} is not a regular expression ({error}); expected one like all_gather"
        ) from None
    catalogue = default_catalogue(jaxlib)
    version = catalogue.jaxlib_version
    flags = [flag for name, flag in catalogue.flags.items() if pattern.search(name)]
    if json:
        return show_json(list_json(version, flags))
    show(lambda width: render_list(version, flags, len(catalogue.flags), width))
