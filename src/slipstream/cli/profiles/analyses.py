"""Commands that show one analysis of a profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.common import (
    DumpsOption,
    FlatOption,
    JsonOption,
    MachineOption,
    PathArgument,
    RunOption,
    SliceBandwidthOption,
    TopOption,
    WholeOption,
    note,
    open_profile,
    show,
    show_json,
    with_tables,
)
from slipstream.cli.profiles.fleets import FleetOption, JobsOption, RayOption, open_fleet

DEFAULT_TOP = 20
# Each imports its analysis while native threads read the profile.


@with_tables
def overlap(
    path: PathArgument,
    whole: WholeOption = False,
    top: TopOption = None,
    flat: FlatOption = False,
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
    show(lambda width: render_overlap(result, width, top or DEFAULT_TOP, flat))


@with_tables
def collectives(
    path: PathArgument,
    top: TopOption = None,
    flat: FlatOption = False,
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
    show(lambda width: render_collectives(result, width, top or DEFAULT_TOP, flat))


@with_tables
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


@with_tables
def gaps(
    path: PathArgument,
    top: TopOption = None,
    flat: Annotated[
        bool, typer.Option("--flat", help="List single gaps, the longest first.")
    ] = False,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Show idle device time by cause, and where it is.

    The host launches too slowly, feeds input, compiles or does something else; or launched work
    has not started. Causes come from host events: where none were recorded, causes are unknown.
    """
    from slipstream.analyses.gaps import gaps as analyse
    from slipstream.outputs.terminal.gaps import gaps_json, render_gaps

    result = analyse(open_profile(path, run, dumps))
    if json:
        return show_json(gaps_json(result, top))
    show(lambda width: render_gaps(result, width, top or 8, flat))


@with_tables
def roofline(
    path: PathArgument,
    top: TopOption = None,
    flat: FlatOption = False,
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
    show(lambda width: render_roofline(result, width, top or DEFAULT_TOP, flat))


@with_tables
def memory(
    path: PathArgument,
    top: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Number of rows to print.  [default: 12]"),
    ] = None,
    flat: Annotated[bool, typer.Option("--flat", help="List equal buffers one by one.")] = False,
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
    show(lambda width: render_memory(result, width, top or 12, flat))


@with_tables
def network(
    path: PathArgument,
    on: MachineOption = None,
    slice_gbps: SliceBandwidthOption = None,
    predicted: Annotated[
        str | None,
        typer.Option(
            metavar="TIMELINE",
            help="Predicted step of the same program (predict --timeline), for questions of "
            "Megascale's guide that PATH does not answer.",
        ),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Write the same as an HTML page."),
    ] = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """Show bandwidth over time on every kind of link.

    Rates are compared with what each link can carry. For TPU slices joined by Megascale it also
    shows transfer latencies, the slack of every collective, and the questions of Megascale's
    guide: each with its answer, what that rests on, and the remedy.
    """
    from slipstream.analyses.network.network import network as analyse
    from slipstream.analyses.network.network import with_prediction
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.network import network_json, render_network

    found = machine(on) if on is not None else None
    profile = open_profile(path, run, dumps)
    if predicted is None:
        result = analyse(profile, found, slice_gbps)
    else:
        result = with_prediction(profile, open_profile(predicted), found, slice_gbps)
    if html is not None:
        from slipstream.outputs.html.network import write_network

        write_network(result, Path(path).name, html)
        note(f"page: {html}")
    if json:
        return show_json(network_json(result), html)
    show(lambda width: render_network(result, width), html)


@with_tables
def hosts(
    path: PathArgument,
    top: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of devices to print.  [default: up to 32; of more, the 20 slowest]",
        ),
    ] = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    fleet: FleetOption = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    json: JsonOption = False,
) -> None:
    """Compare the processes of a run: skew, stragglers, clocks.

    Takes a folder with one recording per process. Clocks are aligned by the ends of collectives,
    which all participants reach together.
    """
    from slipstream.analyses.hosts import hosts as analyse
    from slipstream.outputs.terminal.hosts import hosts_json, render_hosts

    found = open_fleet(path, run, dumps, fleet, jobs, ray, shows_warnings=True)
    result = found.hosts if found is not None else analyse(open_profile(path, run, dumps))
    if json:
        return show_json(hosts_json(result))
    show(lambda width: render_hosts(result, width, top))
