"""`slipstream tune TARGET`: search, from nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, TopOption, show, show_json
from slipstream.cli.tune.common import (
    DEFAULT_STUDY,
    AddOption,
    CaptureOption,
    CommandArgument,
    JobsOption,
    LiveTable,
    MeasureOption,
    OnlyOption,
    RayOption,
    StorageOption,
    TimeoutOption,
    TrialsOption,
    job_order,
    knob,
    seconds,
    size,
)


def start(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET|RUN-FOLDER",
            help="What to compile (FILE.py:FUNCTION, .mlir, .hlo.pb), or a folder of slipstream "
            "run.",
        ),
    ],
    command: CommandArgument = None,
    on: Annotated[
        str, typer.Option("--on", metavar="SPEC", help="Machine: 8xH200, FILE.toml.")
    ] = "8xH200",
    objective: Annotated[
        str, typer.Option(metavar="NAME", help="What is to be small: step, memory or compile.")
    ] = "step",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time for the search: 90s, 10m, 2h.")
    ] = "10m",
    trials: TrialsOption = 60,
    study: Annotated[
        str, typer.Option(metavar="DIR", help="Folder for the study.")
    ] = DEFAULT_STUDY,
    storage: StorageOption = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    costs: Annotated[
        str | None, typer.Option(metavar="PATH", help="Measured costs, as predict takes them.")
    ] = None,
    add: AddOption = None,
    forbid: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A knob that stays as it is.")
    ] = None,
    only: OnlyOption = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most that a device may need: 120GB.")
    ] = None,
    timeout: TimeoutOption = "10m",
    measure: MeasureOption = False,
    capture: CaptureOption = "5:10",
    tolerance: Annotated[
        float, typer.Option(metavar="X", help="How far results may be off, of the largest value.")
    ] = 0.01,
    top: TopOption = None,
    json: JsonOption = False,
) -> None:
    """Find the settings that pay: compile candidates for a machine, simulate, rank.

    A search that was ended goes on with: slipstream tune resume DIR.
    """
    from slipstream.outputs.terminal.tune import render_tuning, tuning_json
    from slipstream.tune.measure.launched import places
    from slipstream.tune.space.space import SpaceOptions
    from slipstream.tune.studies import TuneOptions, tune

    job = job_order(target, command or (), measure, capture)
    added = dict(map(knob, add or ()))
    typed = places(added, job.command) if job is not None else ()
    asked = SpaceOptions(tuple(forbid or ()), added, tuple(only or ()), typed)
    order = TuneOptions(
        on, objective, trials, seconds(budget), Path(study), storage, jobs, costs, asked,
        size(memory), tolerance, seconds(timeout), ray=ray, measure=job,
    )  # fmt: skip
    with LiveTable() as table:
        found = tune(target, order, on_result=table.told, progress=table.progress)
    if json:
        return show_json(tuning_json(found))
    show(lambda width: render_tuning(found, width, top))
