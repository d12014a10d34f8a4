"""`slipstream diagnose`: what slows the step, how much it costs, and how to fix it."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import (
    DumpsOption,
    FlatOption,
    JsonOption,
    MachineOption,
    PathArgument,
    ProgressBar,
    RunOption,
    SliceBandwidthOption,
    TopOption,
    open_profile,
    show,
    show_json,
    with_tables,
)
from slipstream.cli.profiles.fleets import (
    FleetOption,
    HostOption,
    JobsOption,
    RayOption,
    in_detail,
    open_fleet,
)


@with_tables
def diagnose(
    path: PathArgument,
    costs: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="PGLE costs the run was compiled with (.pb, .pbtxt, or a folder), to check them.",
        ),
    ] = None,
    settings: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Script, env file, YAML or Python that set the run's flags.  "
            "[default: the flags in the profile]",
        ),
    ] = None,
    on: MachineOption = None,
    slice_gbps: SliceBandwidthOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Also list rules that found nothing or could not tell.")
    ] = False,
    flat: FlatOption = False,
    top: TopOption = None,
    run: RunOption = None,
    dumps: DumpsOption = None,
    fleet: FleetOption = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    host: HostOption = None,
    json: JsonOption = False,
) -> None:
    """List what slows the step, with evidence, gain and fix.

    Findings are ranked by the time to gain: certain gains first, then expected ones. Gains are
    simulated where possible. Each finding names the exact flag or code change; flags are those of
    the jaxlib that recorded the profile.
    """
    # Loaded while the profile is being read.
    from slipstream.costs.files import read_costs
    from slipstream.diagnosis.diagnose import diagnose as analyse
    from slipstream.flags.settings import read_settings
    from slipstream.machines.topology import machine
    from slipstream.outputs.terminal.diagnose import diagnose_json, render_diagnosis

    hosts = open_fleet(path, run, dumps, fleet, jobs, ray)
    if hosts is not None:
        profile, context = in_detail(hosts, host, dumps)
    else:
        profile, context = open_profile(path, run, dumps), None
    given = None
    if settings is not None:
        kinds = ("xla_flags", "compiler_options")
        found = read_settings(settings)
        given = {one.name: one.value or "" for one in found if one.kind in kinds}
    table = read_costs(costs) if costs is not None else None
    where = machine(on) if on is not None else None
    with ProgressBar("diagnosing", is_bytes=False) as bar:
        result = analyse(
            profile,
            costs=table,
            settings=given,
            machine=where,
            slice_gbps=slice_gbps,
            fleet=context,
            progress=bar.update,
        )
    if json:
        return show_json(diagnose_json(result, top))
    show(lambda width: render_diagnosis(result, width, top, everything, path, flat))
