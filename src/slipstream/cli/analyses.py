"""Commands that show one analysis of a profile."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import (
    DumpsOption,
    JsonOption,
    MachineOption,
    PathArgument,
    RunOption,
    SliceBandwidthOption,
    TopOption,
    WholeOption,
    open_profile,
    show,
    show_json,
)

DEFAULT_TOP = 20
# Each imports its analysis while native threads read the profile.


def overlap(
    path: PathArgument,
    whole: WholeOption = False,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Show which collectives and copies the step waits for.

    A collective is exposed while nothing computes; a copy, while nothing computes or
    communicates. For the others it shows what hid them. Times are per step; with --all, for the
    whole recording.
    """
    from slipstream.analyses.overlap import overlap as analyse
    from slipstream.outputs.terminal.overlap import overlap_json, render_overlap

    result = analyse(open_profile(path, run, dumps), whole=whole)
    if json:
        return show_json(overlap_json(result, top))
    show(lambda width: render_overlap(result, width, top or DEFAULT_TOP))


def collectives(
    path: PathArgument,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Show the size, bandwidth and stragglers of every collective.

    Bus bandwidth is compared with the GPU's link to its neighbours, in one direction. With
    recordings of several processes (a folder of them), time spent waiting for the last
    participant is separated from time spent moving bytes.
    """
    from slipstream.analyses.collectives import collectives as analyse
    from slipstream.outputs.terminal.collectives import collectives_json, render_collectives

    result = analyse(open_profile(path, run, dumps))
    if json:
        return show_json(collectives_json(result, top))
    show(lambda width: render_collectives(result, width, top or DEFAULT_TOP))


def slack(
    path: PathArgument,
    step: Annotated[
        int | None,
        typer.Option(metavar="N", help="Step to analyse.  [default: the one of median length]"),
    ] = None,
    device: Annotated[
        int, typer.Option(metavar="N", min=0, help="Device, counted over all hosts.")
    ] = 0,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Show how much later each collective and copy could run.

    Slack is the delay that would not delay the step. Ops without slack come first, with the op
    that needs their result and the op they wait for. The analysis covers one step of one device.
    """
    from slipstream.analyses.slack import slack as analyse
    from slipstream.outputs.terminal.slack import render_slack, slack_json

    result = analyse(open_profile(path, run, dumps), step=step, device=device)
    if json:
        return show_json(slack_json(result, top))
    show(lambda width: render_slack(result, width, top or DEFAULT_TOP))


def gaps(
    path: PathArgument,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Show idle device time by cause, and the longest gaps.

    The host launches too slowly, feeds input, compiles or does something else; or launched work
    has not started. Causes come from host events: where none were recorded, causes are unknown.
    """
    from slipstream.analyses.gaps import gaps as analyse
    from slipstream.outputs.terminal.gaps import gaps_json, render_gaps

    result = analyse(open_profile(path, run, dumps))
    if json:
        return show_json(gaps_json(result, top))
    show(lambda width: render_gaps(result, width, top or 8))


def roofline(
    path: PathArgument,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Show how close each op is to the hardware's limit, and MFU.

    Floating-point operations and bytes are counted from the program; peaks are those of the GPU
    model. The op that would gain most at its roof comes first.
    """
    from slipstream.analyses.roofline import roofline as analyse
    from slipstream.outputs.terminal.roofline import render_roofline, roofline_json

    result = analyse(open_profile(path, run, dumps))
    if json:
        return show_json(roofline_json(result, top))
    show(lambda width: render_roofline(result, width, top or DEFAULT_TOP))


def memory(
    path: PathArgument,
    top: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Number of rows to print.  [default: 12]"),
    ] = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Show the device memory of each program, and its peak.

    Memory is counted from the program: arguments, results, and temporaries from their
    instruction to their last use. The program with the most device time is shown in full, every
    other in one line.
    """
    from slipstream.analyses.memory import memory as analyse
    from slipstream.outputs.terminal.memory import memory_json, render_memory

    result = analyse(open_profile(path, run, dumps))
    if json:
        return show_json(memory_json(result))
    show(lambda width: render_memory(result, width, top or 12))


def network(
    path: PathArgument,
    on: MachineOption = None,
    slice_gbps: SliceBandwidthOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Show bandwidth over time on every kind of link.

    Rates are compared with what each link can carry. For TPU slices joined by Megascale it also
    shows transfer latencies, the slack of every collective, and the problems that Megascale's
    guide describes, each with its remedy.
    """
    from slipstream.analyses.network.network import network as analyse
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.network import network_json, render_network

    found = machine(on) if on is not None else None
    result = analyse(open_profile(path, run, dumps), found, slice_gbps)
    if json:
        return show_json(network_json(result))
    show(lambda width: render_network(result, width))


def hosts(
    path: PathArgument,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Compare the processes of a run: skew, stragglers, clocks.

    Takes a folder with one recording per process. Clocks are aligned by the ends of collectives,
    which all participants reach together.
    """
    from slipstream.analyses.hosts import hosts as analyse
    from slipstream.outputs.terminal.hosts import hosts_json, render_hosts

    result = analyse(open_profile(path, run, dumps))
    if json:
        return show_json(hosts_json(result))
    show(lambda width: render_hosts(result, width))
