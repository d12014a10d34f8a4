"""`slipstream predict`: how long a step would take on machines one doesn't have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.cli.predicting import (
    DEFAULT_MACHINE,
    CommandBuffersOption,
    CompileProgress,
    CostsOption,
    HtmlOption,
    MachinesOption,
    TimelineOption,
    WaitsOption,
    keep_page,
    keep_timeline,
    machines,
    measured,
)

if TYPE_CHECKING:
    from slipstream.results.prediction import Prediction


def predict(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="What to compile: FILE.py:FUNCTION, StableHLO (.mlir), or HLO before "
            "optimisation (.hlo.pb, .txt).",
        ),
    ],
    on: MachinesOption = DEFAULT_MACHINE,
    flags: Annotated[
        str | None,
        typer.Option("--flags", metavar="FLAGS", help="As in XLA_FLAGS: '--xla_…=… --xla_…=…'."),
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
    """How long a step would take on a machine, where it would wait, what could be won.

    The real XLA GPU compiler compiles TARGET, with no GPU; the result is simulated. Costs that
    were measured go to XLA's scheduler and to the simulation; the rest is modelled.
    """
    from slipstream.compiler.compile import compilation
    from slipstream.outputs.terminal.predict import prediction_json, render_predictions
    from slipstream.simulate.prediction import predict as make

    known = measured(costs)
    found: list[Prediction] = []
    for machine in machines(on):
        with CompileProgress(machine) as progress:
            compiled = compilation(
                target,
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
        keep_timeline(timeline, prediction, compiled.proto, "," in on)
    keep_page(html, found)
    if json:
        return show_json(prediction_json(found))
    show(lambda width: render_predictions(found, width, waits))
