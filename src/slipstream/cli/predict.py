"""`slipstream predict`: the step time on machines you don't have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.cli.prediction import (
    DEFAULT_MACHINE,
    CommandBuffersOption,
    CompileProgress,
    CostsOption,
    HtmlOption,
    MachinesOption,
    TimelineOption,
    WaitsOption,
    measured_costs,
    parse_machines,
    save_page,
    save_timeline,
)

if TYPE_CHECKING:
    from slipstream.results.prediction import Prediction


def predict(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="Program to compile: FILE.py:FUNCTION, StableHLO (.mlir), HLO before "
            "optimisation (.hlo.pb, .txt), or a folder written by `slipstream run`.",
        ),
    ],
    on: MachinesOption = DEFAULT_MACHINE,
    flags: Annotated[
        str | None,
        typer.Option("--flags", metavar="FLAGS", help="XLA flags: '--xla_…=… --xla_…=…'."),
    ] = None,
    costs: CostsOption = None,
    autotuning: Annotated[
        str | None,
        typer.Option("--autotuning", metavar="FILE", help="Autotuning results for XLA to use."),
    ] = None,
    command_buffers: CommandBuffersOption = None,
    timeline: TimelineOption = None,
    html: HtmlOption = None,
    waits: WaitsOption = False,
    json: JsonOption = False,
) -> None:
    """Predict the step time on any machine, without a GPU.

    XLA's GPU compiler compiles TARGET, with no GPU needed, and the result is simulated. Prints
    the step, where it would wait, and what better overlap could gain. Measured costs go to XLA's
    scheduler and to the simulation; all other costs are modelled.
    """
    from slipstream.compiler.compile import compilation
    from slipstream.outputs.terminal.predict import prediction_json, render_predictions
    from slipstream.simulate.prediction import predict as make
    from slipstream.tune.run_folder import as_target

    program, _ = as_target(target)
    known = measured_costs(costs)
    found: list[Prediction] = []
    for machine in parse_machines(on):
        with CompileProgress(machine) as progress:
            compiled = compilation(
                program,
                on=machine,
                flags=flags,
                costs=known.for_scheduler if known is not None else None,
                autotuning=autotuning,
                progress=progress.update,
            )
        prediction = make(
            compiled.program,
            machine,
            known.costs if known is not None else None,
            source=known.source if known is not None else None,
            compilation=compiled,
            command_buffers=command_buffers,
        )
        found.append(prediction)
        save_timeline(timeline, prediction, compiled.proto, "," in on)
    save_page(html, found)
    if json:
        return show_json(prediction_json(found), html, timeline)
    show(lambda width: render_predictions(found, width, waits), html, timeline)
