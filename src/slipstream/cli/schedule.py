"""`slipstream schedule`: a better order of a program's instructions than XLA's."""

from __future__ import annotations

from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.cli.prediction import CompileProgress, CostsOption, measured_costs


def schedule(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="Program to order: FILE.py:FUNCTION, StableHLO (.mlir), HLO before "
            "optimisation (.hlo.pb, .txt), or a folder written by `slipstream run`.",
        ),
    ],
    on: Annotated[
        str, typer.Option("--on", metavar="SPEC", help="Machine: 8xH200, 64xH100, FILE.toml.")
    ] = "8xH200",
    costs: CostsOption = None,
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory",
            metavar="SIZE",
            help="Memory of a GPU that an order may use: 120GB.  [default: 90% of it]",
        ),
    ] = None,
    flags: Annotated[
        str | None,
        typer.Option("--flags", metavar="FLAGS", help="XLA flags: '--xla_…=… --xla_…=…'."),
    ] = None,
    order_only: Annotated[
        bool, typer.Option("--order-only", help="Change the order alone, no flags.")
    ] = False,
    budget: Annotated[
        str, typer.Option("--budget", metavar="TIME", help="Time to search each program.")
    ] = "20s",
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the order, as JSON."),
    ] = None,
    html: Annotated[
        str | None,
        typer.Option("--html", metavar="FILE", help="Write an HTML page: what moved, and why."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Search a better order of a program's instructions than XLA's.

    XLA compiles TARGET, with no GPU needed. Its order, its order with costs and ours are
    simulated, beside the least that any order takes; XLA then compiles ours (JAX 0.11 or newer).
    """
    from slipstream.cli.tune.common import seconds, size
    from slipstream.compiler.options import split_flags
    from slipstream.machines.topology import machine
    from slipstream.outputs.html.schedule import write_schedule
    from slipstream.outputs.terminal.compiled.schedule import render_schedule, schedule_json
    from slipstream.scheduling.comparison import ScheduleSettings, scheduled
    from slipstream.tune.run_folder import as_target

    program, recording = as_target(target)
    settings = ScheduleSettings(
        most_bytes=size(memory),
        seconds=seconds(budget),
        order_only=order_only,
        flags=split_flags(flags).all,
    )
    where = machine(on)
    with CompileProgress(where) as progress:
        found = scheduled(
            program, where, measured_costs(costs or recording), settings, progress.update
        )
    if out is not None:
        found.order.write(out)
    if html is not None:
        write_schedule(found.result, html)
    if json:
        return show_json(schedule_json(found.result, out), out, html)
    show(lambda width: render_schedule(found.result, width), out, html)
