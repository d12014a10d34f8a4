"""`slipstream flags preset NAME...`: recommended settings for this jaxlib."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import PLAIN_WIDTH, JsonOption, echo, show_json
from slipstream.cli.flags.common import GpuOption, JaxlibOption, catalogue_for


def preset(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Presets to combine.")
    ] = None,
    form: Annotated[
        str,
        typer.Option(
            "--for", metavar="FORM", help="Output: sh, dotenv, json, python, slurm or k8s."
        ),
    ] = "sh",
    jaxlib: JaxlibOption = None,
    gpu: GpuOption = None,
    list_all: Annotated[bool, typer.Option("--list", help="List all presets.")] = False,
    json: JsonOption = False,
) -> None:
    """Print recommended settings for a kind of job.

    Settings come from published guides, updated for this jaxlib. Presets that set one flag to
    different values can't be combined.
    """
    from slipstream.outputs.preset_files import list_lines, preset_json, render

    if list_all:
        return echo("\n".join(list_lines(PLAIN_WIDTH)))
    from slipstream.flags.presets.presets import compose

    composed = compose(names or [], catalogue_for(jaxlib), gpu)
    if json:
        return show_json(preset_json(composed))
    echo(render(composed, form).rstrip("\n"))
