"""`slipstream simulate`: the step of an optimised program that one already has."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.cli.predicting import (
    DEFAULT_MACHINE,
    CommandBuffersOption,
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
from slipstream.errors import BadInput


def simulate(
    program: Annotated[
        str,
        typer.Argument(metavar="PROGRAM", help="An optimised program: HLO text, or proto (.pb)."),
    ],
    on: MachinesOption = DEFAULT_MACHINE,
    costs: CostsOption = None,
    command_buffers: CommandBuffersOption = None,
    timeline: TimelineOption = None,
    html: HtmlOption = None,
    waits: WaitsOption = False,
    json: JsonOption = False,
) -> None:
    """The step of an optimised program, as it would run on a machine.

    PROGRAM is what XLA made: compiled.as_text(), or what it dumps after optimisation. To
    compile one, for any number of GPUs and with none at hand, see: slipstream predict
    """
    from slipstream.outputs.terminal.predict import prediction_json, render_predictions
    from slipstream.simulate.prediction import predict
    from slipstream.sources.hlo.reader import read_program

    found = read_program(program)
    if not found.is_scheduled:
        raise BadInput(
            f"{program} has no schedule, so it is a program before optimisation; compile and "
            f"predict it: slipstream predict {program} --on {on}"
        )
    known = measured(costs)
    predictions = []
    for machine in machines(on):
        prediction = predict(
            found,
            machine,
            known.costs if known is not None else None,
            source=known.source if known is not None else None,
            command_buffers=command_buffers,
        )
        predictions.append(prediction)
        keep_timeline(timeline, prediction, Path(program), "," in on)
    keep_page(html, predictions)
    if json:
        return show_json(prediction_json(predictions))
    show(lambda width: render_predictions(predictions, width, waits))
