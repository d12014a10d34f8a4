"""`slipstream machines list`: all known GPUs and networks."""

from __future__ import annotations

from slipstream.cli.common import JsonOption, show, show_json


def list_machines(json: JsonOption = False) -> None:
    """List all known GPUs and networks, with their peaks."""
    from slipstream.machines.gpus import gpus, networks
    from slipstream.outputs.terminal.machines import list_json, render_list

    if json:
        return show_json(list_json(gpus(), networks()))
    show(lambda width: render_list(gpus(), networks(), width))
