"""`slipstream predict`: the step time on machines you don't have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import JsonOption, show, show_json
from slipstream.cli.prediction import (
    DEFAULT_MACHINE,
    BaselineOption,
    CommandBuffersOption,
    CompileProgress,
    CostsOption,
    GateOption,
    HtmlOption,
    MachinesOption,
    MarkdownOption,
    MemoryGateOption,
    PredictionOutputOption,
    TimelineOption,
    WaitsOption,
    WhatIfOption,
    asked_gate,
    asked_what_if,
    check_json_name,
    fail_if_worse,
    identified,
    measured_costs,
    parse_machines,
    save_json,
    save_page,
    save_timeline,
)
from slipstream.errors import BadInput

if TYPE_CHECKING:
    from slipstream.compiler.compilation import Compilation
    from slipstream.compiler.targets import Target
    from slipstream.machines.machine import Machine
    from slipstream.results.prediction import Prediction
    from slipstream.simulate.recorded import RecordedCosts
    from slipstream.simulate.what_if import Asked


def predict(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="Program to compile: FILE.py:FUNCTION, StableHLO (.mlir), HLO before "
            "optimisation (.hlo.pb, .txt), or a folder written by `slipstream run`; with "
            "--maxtext, MaxText's CONFIG.yml.",
        ),
    ],
    setting: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE...", help="MaxText's settings, with --maxtext."),
    ] = None,
    on: MachinesOption = DEFAULT_MACHINE,
    maxtext: Annotated[
        bool,
        typer.Option(
            "--maxtext", help="Compile the step that MaxText trains with this configuration."
        ),
    ] = False,
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
    what_if: WhatIfOption = None,
    output: PredictionOutputOption = None,
    baseline: BaselineOption = None,
    gate: GateOption = None,
    gate_memory: MemoryGateOption = None,
    markdown: MarkdownOption = None,
    json: JsonOption = False,
) -> None:
    """Predict the step time on any machine, without a GPU.

    XLA's GPU compiler compiles TARGET, with no GPU needed, and the result is simulated. Prints
    the step, where it would wait, and what better overlap could gain. Measured costs go to XLA's
    scheduler and to the simulation; all other costs are modelled. With --gate the exit code is 1
    if the step is slower than the baseline's, or needs more memory.
    """
    from slipstream.outputs.regression import regression_json, render_regressions
    from slipstream.outputs.terminal.compiled.predict import prediction_json, render_predictions
    from slipstream.simulate.regression import baseline as compared_part

    check_json_name(output)
    gate_asked = asked_gate(baseline, gate, gate_memory, markdown)
    machines = parse_machines(on)
    predictor = Predictor(
        machines, flags, measured_costs(costs), autotuning, command_buffers,
        asked_what_if(what_if, machines),
    )  # fmt: skip
    before = [compared_part(one) for one, _ in predictor.predictions(gate_asked.target)]
    found: list[Prediction] = []
    for prediction, compiled in predictor.predictions(_program(target, setting or [], maxtext)):
        found.append(prediction)
        save_timeline(timeline, prediction, compiled.proto, "," in on)
    save_page(html, found)
    compared = gate_asked.judge(found, before, " ".join([target, *(setting or [])]))
    data = prediction_json(found, [regression_json(one) for one in compared])
    save_json(output, data)
    if json:
        show_json(data, html, timeline, output, markdown)
    else:
        show(
            lambda width: render_predictions(found, width, waits), html, timeline, output, markdown
        )
        if compared:
            show(
                lambda width: render_regressions(compared, width), html, timeline, output, markdown
            )
    fail_if_worse(compared)


def _program(target: str, settings: Sequence[str], is_maxtext: bool) -> str | Target:
    if is_maxtext:
        from slipstream.maxtext import step_target

        return step_target(target, settings)
    if settings:
        raise BadInput(
            f"predict takes one target, and got {settings[0]} as well; settings of MaxText need "
            "--maxtext: slipstream predict --maxtext CONFIG.yml key=value"
        )
    return target


@dataclass(frozen=True)
class Predictor:
    """How programs are compiled and simulated: the same way before and after a change."""

    machines: Sequence[Machine]
    flags: str | None
    costs: RecordedCosts | None
    autotuning: str | None
    command_buffers: bool | None
    networks: Sequence[Asked] | None

    def predictions(self, target: str | Target | None) -> Iterator[tuple[Prediction, Compilation]]:
        """One for each machine; none without a target."""
        from slipstream.compiler.compile import compilation
        from slipstream.simulate.prediction import predict as make
        from slipstream.tune.run_folder import as_target

        if target is None:
            return
        program = as_target(target)[0] if isinstance(target, str) else target
        known = self.costs
        for machine in self.machines:
            with CompileProgress(machine) as progress:
                compiled = compilation(
                    program,
                    on=machine,
                    flags=self.flags,
                    costs=known.for_scheduler if known is not None else None,
                    autotuning=self.autotuning,
                    progress=progress.update,
                    program_only=True,
                )
            prediction = make(
                compiled.program,
                machine,
                known.costs if known is not None else None,
                source=known.source if known is not None else None,
                compilation=compiled,
                command_buffers=self.command_buffers,
                networks=self.networks,
            )
            yield identified(prediction, compiled.program, compiled), compiled
