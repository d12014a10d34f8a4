"""`slipstream flags preset NAME...`: the guides' settings, as this jaxlib wants them."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import PLAIN_WIDTH, JsonOption, echo, show_json
from slipstream.cli.flags.lint import GpuOption, JaxlibOption, catalogue_for


def preset(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="NAME...", help="Presets to join.")
    ] = None,
    form: Annotated[
        str,
        typer.Option("--for", metavar="FORM", help="sh, dotenv, json, python, slurm or k8s."),
    ] = "sh",
    jaxlib: JaxlibOption = None,
    gpu: GpuOption = None,
    list_all: Annotated[bool, typer.Option("--list", help="Name all presets.")] = False,
    json: JsonOption = False,
) -> None:
    """Settings for a kind of job: what the guides say, and what became of it.

    Presets that want different values of one flag are an error.
    """
    from slipstream.outputs.preset_files import list_lines, preset_json, render

    if list_all:
        return echo("\n".join(list_lines(PLAIN_WIDTH)))
    from slipstream.flags.presets.presets import compose

    composed = compose(names or [], catalogue_for(jaxlib), gpu)
    if json:
        return show_json(preset_json(composed))
    echo(render(composed, form).rstrip("\n"))
