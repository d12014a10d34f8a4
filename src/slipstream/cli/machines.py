"""`slipstream machines`: GPUs, how they are connected, and what was measured on them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import JsonOption, echo, open_profile, show, show_json
from slipstream.cli.group import CommandGroup
from slipstream.errors import BadInput

if TYPE_CHECKING:
    from slipstream.machines.collectives import CollectiveCurve
    from slipstream.profile.program import Program

SpecArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPEC",
        help="Machine: 8xH200, 4x8xH100 (hosts × GPUs), 2x4x8xB200 (slices × hosts × GPUs), or "
        "a .toml file.",
    ),
]
FilesArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE…",
        help="Output of nccl-tests (text), or profiles.",
    ),
]
OutOption = Annotated[
    str, typer.Option("-o", "--out", metavar="FILE", help="Machine file to write (.toml).")
]
GpuOption = Annotated[
    str | None,
    typer.Option(
        metavar="SPEC",
        help="GPU or machine measured: H200, 2x8xH100.  [default: from nccl-tests]",
    ),
]
NetworkOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="Network, see `machines list`.  [default: the GPU's usual one]"
    ),
]
KindOption = Annotated[
    str | None,
    typer.Option(metavar="KIND", help="Collective, if the text has no header: all-gather, …"),
]


machines = typer.Typer(
    cls=CommandGroup,
    help="List, describe and calibrate GPUs and networks.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@machines.command("list")
def list_machines(json: JsonOption = False) -> None:
    """List all known GPUs and networks, with their peaks."""
    from slipstream.machines.gpus import gpus, networks
    from slipstream.outputs.terminal.machines import list_json, render_list

    if json:
        return show_json(list_json(gpus(), networks()))
    show(lambda width: render_list(gpus(), networks(), width))


@machines.command("show")
def show_machine(spec: SpecArgument, json: JsonOption = False) -> None:
    """Show a machine: facts, sources, and times of collectives."""
    from slipstream.machines.collectives import overview
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.machines import overview_json, render_overview

    found = overview(machine(spec))
    if json:
        return show_json(overview_json(found))
    show(lambda width: render_overview(found, width))


@machines.command()
def calibrate(
    files: FilesArgument,
    out: OutOption,
    gpu: GpuOption = None,
    network: NetworkOption = None,
    kind: KindOption = None,
    json: JsonOption = False,
) -> None:
    """Write a machine file from measured collectives and kernels.

    Group sizes and message sizes that were not measured follow the model, scaled to the
    measurements.
    """
    from slipstream.machines import calibrate as calibration
    from slipstream.machines.files import write_machine
    from slipstream.machines.gpus import network as network_named
    from slipstream.machines.kernel_model import kernel_scales
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.machines import calibrated_lines, calibration_json

    measured = machine(gpu or calibration.device_of(files))
    if network is not None:
        network_named(network)
    curves: list[CollectiveCurve] = []
    kernels: dict[str, float] = {}
    for file in files:
        name = Path(file).name
        if calibration.is_text(file):
            text = calibration.read_text(file)
            curves += calibration.nccl_tests(text, name, kind, measured.gpu.link_domain)
            continue
        for program, times in _programs(file):
            curves += calibration.program_curves(program, times, measured, name)
            kernels |= kernel_scales(measured, program, times)
    if not curves and not kernels:
        raise BadInput(f"no measurements in {', '.join(files)}; {calibration.EXPECTED}")
    counts = calibration.counts_of(curves, measured)
    data = calibration.machine_data(measured.gpu.name, curves, counts, network, kernels)
    write_machine(out, data, "Calibrated machine; written by: slipstream machines calibrate")
    if json:
        return show_json(calibration_json(curves, kernels, out), out)
    echo("\n".join(calibrated_lines(curves, kernels, out)), out)


def _programs(file: str) -> list[tuple[Program, Mapping[str, float]]]:
    """The programs of a recording and the times of their instructions, the hottest last."""
    from slipstream.costs.extract import extract_costs

    profile = open_profile(file)
    return [
        (profile.programs[costs.program], {name: cost.us for name, cost in costs.costs.items()})
        for costs in sorted(extract_costs(profile).programs, key=lambda one: one.total_us)
        if costs.program in profile.programs
    ]
