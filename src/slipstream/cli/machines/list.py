"""`slipstream machines list`: the GPUs and networks that have a name."""

from __future__ import annotations

from slipstream.cli.common import JsonOption, show, show_json


def list_machines(json: JsonOption = False) -> None:
    """GPUs and networks that Slipstream knows, with their peaks."""
    from slipstream.machines.gpus import gpus, networks
    from slipstream.outputs.terminal.machines import list_json, render_list

    if json:
        return show_json(list_json(gpus(), networks()))
    show(lambda width: render_list(gpus(), networks(), width))
