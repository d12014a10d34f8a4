"""`slipstream network`: what links carried over time, what limits, and what goes wrong."""

from __future__ import annotations

from slipstream.cli.common import (
    DumpsOption,
    JsonOption,
    LinksOption,
    PathArgument,
    RunOption,
    SliceOption,
    open_profile,
    show,
    show_json,
)


def network(
    path: PathArgument,
    on: LinksOption = None,
    slice_gbps: SliceOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Bandwidth over time on every kind of link, against what the link could carry.

    Of TPU slices joined by Megascale also: how long transfers took, the slack of every
    collective, and the troubles that Megascale's guide knows, each with its remedy.
    """
    from slipstream.analyses.network.network import network as analyse
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.network import network_json, render_network

    found = machine(on) if on is not None else None
    result = analyse(open_profile(path, run, dumps), found, slice_gbps)
    if json:
        return show_json(network_json(result))
    show(lambda width: render_network(result, width))
