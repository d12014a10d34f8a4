"""`slipstream simulate`: the step of a program that is already compiled."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.cli.prediction import (
    DEFAULT_MACHINE,
    CommandBuffersOption,
    CostsOption,
    HtmlOption,
    MachinesOption,
    TimelineOption,
    WaitsOption,
    WhatIfOption,
    asked_what_if,
    identified,
    measured_costs,
    parse_machines,
    save_page,
    save_timeline,
)
from slipstream.errors import BadInput
from slipstream.remote.paths import any_path


def simulate(
    program: Annotated[
        str,
        typer.Argument(metavar="PROGRAM", help="Optimised program: HLO text, or proto (.pb)."),
    ],
    on: MachinesOption = DEFAULT_MACHINE,
    costs: CostsOption = None,
    command_buffers: CommandBuffersOption = None,
    timeline: TimelineOption = None,
    html: HtmlOption = None,
    waits: WaitsOption = False,
    what_if: WhatIfOption = None,
    json: JsonOption = False,
) -> None:
    """Simulate the step of a compiled program on any machine.

    PROGRAM is the output of XLA's optimisation: compiled.as_text(), or an XLA dump. To compile
    and simulate in one command, use: slipstream predict
    """
    from slipstream.analyses.memory import program_memory
    from slipstream.outputs.terminal.compiled.predict import prediction_json, render_predictions
    from slipstream.simulate.prediction import predict
    from slipstream.sources.hlo.reader import read_program

    found = read_program(program)
    if not found.is_scheduled:
        raise BadInput(
            f"{program} has no schedule, so it is a program before optimisation; compile and "
            f"predict it: slipstream predict {program} --on {on}"
        )
    known = measured_costs(costs)
    memory = program_memory(found).peak_bytes
    predictions = []
    machines = parse_machines(on)
    networks = asked_what_if(what_if, machines)
    for machine in machines:
        prediction = predict(
            found,
            machine,
            known.costs if known is not None else None,
            source=known.source if known is not None else None,
            command_buffers=command_buffers,
            networks=networks,
        )
        prediction = replace(identified(prediction, found), memory_bytes=memory)
        predictions.append(prediction)
        save_timeline(timeline, prediction, any_path(program), "," in on)
    save_page(html, predictions)
    if json:
        return show_json(prediction_json(predictions), html, timeline)
    show(lambda width: render_predictions(predictions, width, waits), html, timeline)
