"""`slipstream diagnose`: what is wrong with the step, what it costs, and what to do."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import (
    DumpsOption,
    JsonOption,
    LinksOption,
    LoadBar,
    PathArgument,
    RunOption,
    SliceOption,
    TopOption,
    open_profile,
    show,
    show_json,
)


def diagnose(
    path: PathArgument,
    costs: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="PGLE costs that the run was given (.pb, .pbtxt, a folder), to check them.",
        ),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Script, env file, YAML or Python that set the run's flags.  [default: what the "
            "profile holds]",
        ),
    ] = None,
    on: LinksOption = None,
    slice_gbps: SliceOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also the rules that could not tell, or found nothing.")
    ] = False,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    json: JsonOption = False,
) -> None:
    """What is wrong with the step, ranked by the time to be won.

    Each finding has its evidence, what it would win (simulated where that is possible) and the
    exact flag or change of code. Flags are those of the jaxlib that made the profile. First comes
    what can be counted on, then what is expected.
    """
    # Loaded while the profile is being read.
    from slipstream.costs.files import read_costs
    from slipstream.diagnosis.diagnose import diagnose as analyse
    from slipstream.flags.settings import read_settings
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.diagnose import diagnose_json, render_diagnosis

    profile = open_profile(path, run, dumps)
    given = None
    if settings is not None:
        kinds = ("xla_flags", "compiler_options")
        found = read_settings(settings)
        given = {one.name: one.value or "" for one in found if one.kind in kinds}
    table = read_costs(costs) if costs is not None else None
    where = machine(on) if on is not None else None
    with LoadBar("diagnosing", is_bytes=False) as bar:
        result = analyse(
            profile,
            costs=table,
            settings=given,
            machine=where,
            slice_gbps=slice_gbps,
            progress=bar.update,
        )
    if json:
        return show_json(diagnose_json(result, top))
    show(lambda width: render_diagnosis(result, width, top, everything, path))
