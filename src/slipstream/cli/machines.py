"""`slipstream machines`: GPUs and TPUs, how they are connected, and what was measured on them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import JsonOption, echo, open_profile, show, show_json, with_tables
from slipstream.cli.group import CommandGroup
from slipstream.errors import BadInput
from slipstream.remote.paths import any_path

if TYPE_CHECKING:
    from slipstream.machines.collectives import CollectiveCurve
    from slipstream.machines.measured_calls import MeasuredCall
    from slipstream.profile.program import Program

SpecArgument = Annotated[
    str,
    typer.Argument(
        metavar="SPEC",
        help="Machine: 8xH200, 4x8xH100 (hosts × GPUs), 2x4x8xB200 (slices × hosts × GPUs), "
        "v5p-128 or v5p:4x4x4 (TPUs), 2xv5e-256 (slices × TPUs), or a .toml file.",
    ),
]
FilesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE…",
        help="Output of nccl-tests (text), or profiles.",
    ),
]
KernelOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE.py:FUNCTION",
        help="Function to run on the local GPU: its custom calls are measured and kept by name and "
        "operand shapes. Repeatable; adds to the machine file if that exists.",
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
    help="List, describe and calibrate GPUs, TPUs and networks.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@machines.command("list")
@with_tables
def list_machines(json: JsonOption = False) -> None:
    """List all known GPUs, TPUs and networks, with their peaks."""
    from slipstream.machines.gpus import gpus, networks
    from slipstream.machines.tpus import tpus
    from slipstream.outputs.terminal.machines import list_json, render_list

    if json:
        return show_json(list_json(gpus(), tpus(), networks()))
    show(lambda width: render_list(gpus(), tpus(), networks(), width))


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
    out: OutOption,
    files: FilesArgument = None,
    kernel: KernelOption = None,
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
    from slipstream.machines.files import with_calls, write_machine
    from slipstream.machines.gpus import network as network_named
    from slipstream.machines.kernel_model import kernel_scales
    from slipstream.machines.measured_calls import measured_calls
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.machines import calibrated_lines, calibration_json
    from slipstream.simulate.power_cap import recorded_share

    if network is not None:
        network_named(network)
    if not files and not kernel:
        raise BadInput(
            "nothing to calibrate from; give nccl-tests output or a profile, or "
            "--kernel FILE.py:FUNCTION on a machine with a GPU"
        )
    calls, model = _measured_kernels(kernel or [])
    files = files or []
    measured = machine(gpu or model or calibration.device_of(files))
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
            clocked = measured.at(recorded_share(program, measured, times))
            kernels |= kernel_scales(clocked, program, times)
            calls += measured_calls(program, times, name)
    if not curves and not kernels and not calls:
        raise BadInput(
            f"no measurements in {', '.join(files) or 'no file'}; {calibration.EXPECTED}"
        )
    if not files and any_path(out).exists():
        data = with_calls(out, calls)
    else:
        counts = calibration.counts_of(curves, measured)
        data = calibration.machine_data(measured.gpu.name, curves, counts, network, kernels, calls)
    write_machine(out, data, "Calibrated machine; written by: slipstream machines calibrate")
    if json:
        return show_json(calibration_json(curves, kernels, out, calls), out)
    echo("\n".join(calibrated_lines(curves, kernels, out, calls)), out)


def _measured_kernels(targets: list[str]) -> tuple[list[MeasuredCall], str]:
    """The custom calls of functions that are run on the local GPU, and the GPU's name."""
    if not targets:
        return [], ""
    from tempfile import TemporaryDirectory

    from slipstream.bench.kernel_profile import profile_function
    from slipstream.machines.measured_calls import measured_calls

    calls: list[MeasuredCall] = []
    model = ""
    for target in targets:
        with TemporaryDirectory(prefix="slipstream-kernel-") as folder:
            model = profile_function(target, Path(folder))
            programs = _programs(folder)
        found = [one for p, times in programs for one in measured_calls(p, times, target)]
        if not found:
            raise BadInput(
                f"{target} ran no custom call of its own; libraries' calls and fusions have "
                "models: to calibrate those, give a profile as FILE"
            )
        calls += found
    return calls, model


def _programs(file: str) -> list[tuple[Program, Mapping[str, float]]]:
    """The programs of a recording and the times of their instructions, the hottest last."""
    from slipstream.costs.extract import extract_costs

    profile = open_profile(file)
    return [
        (profile.programs[costs.program], {name: cost.us for name, cost in costs.costs.items()})
        for costs in sorted(extract_costs(profile).programs, key=lambda one: one.total_us)
        if costs.program in profile.programs
    ]
