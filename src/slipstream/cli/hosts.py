"""`slipstream hosts`: processes of a run beside each other."""

from __future__ import annotations

from slipstream.cli.common import (
    DumpsOption,
    JsonOption,
    PathArgument,
    RunOption,
    open_profile,
    show,
    show_json,
)


def hosts(
    path: PathArgument,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """The processes of a run beside each other: skew, stragglers, clocks.

    Takes a folder of recordings, one a process. Clocks are aligned by the ends of collectives,
    which all participants reach together.
    """
    # Loaded while the profile is being read.
    from slipstream.analyses.hosts import hosts as analyse
    from slipstream.outputs.terminal.hosts import hosts_json, render_hosts

    result = analyse(open_profile(path, run, dumps))
    if json:
        return show_json(hosts_json(result))
    show(lambda width: render_hosts(result, width))
