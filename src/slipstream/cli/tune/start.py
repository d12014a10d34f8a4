"""`slipstream tune TARGET`: start a search."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, TopOption, show, show_json
from slipstream.cli.study_place import named, working_folder
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
    job_to_measure,
    knob,
    seconds,
    size,
)


def start(
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET|RUN-FOLDER",
            help="Program to compile (FILE.py:FUNCTION, .mlir, .hlo.pb), or a folder written by "
            "`slipstream run`.",
        ),
    ],
    command: CommandArgument = None,
    on: Annotated[
        str, typer.Option("--on", metavar="SPEC", help="Machine: 8xH200, v5p-128, FILE.toml.")
    ] = "8xH200",
    objective: Annotated[
        str, typer.Option(metavar="NAME", help="Objective to minimise: step, memory or compile.")
    ] = "step",
    budget: Annotated[
        str, typer.Option(metavar="TIME", help="Time for the search: 90s, 10m, 2h.")
    ] = "10m",
    trials: TrialsOption = 60,
    study: Annotated[
        str, typer.Option(metavar="DIR", help="Folder or URL for the study.")
    ] = DEFAULT_STUDY,
    storage: StorageOption = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    costs: Annotated[
        str | None, typer.Option(metavar="PATH", help="Measured costs, as for `predict`.")
    ] = None,
    add: AddOption = None,
    forbid: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Leave this knob at its default; may be repeated."),
    ] = None,
    only: OnlyOption = None,
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Memory limit of a device: 120GB.")
    ] = None,
    timeout: TimeoutOption = "10m",
    measure: MeasureOption = False,
    capture: CaptureOption = "5:10",
    tolerance: Annotated[
        float,
        typer.Option(
            metavar="X",
            help="Largest allowed difference of results, relative to the largest value.",
        ),
    ] = 0.01,
    top: TopOption = None,
    json: JsonOption = False,
) -> None:
    """Search for faster flags: compile candidates, simulate, rank.

    Continue an interrupted search with: slipstream tune resume DIR
    """
    from slipstream.outputs.terminal.compiled.tune import render_tuning, tuning_json
    from slipstream.tune.measure.launched import placeholders_in
    from slipstream.tune.space.space import SpaceOptions
    from slipstream.tune.studies import TuneOptions, tune

    job = job_to_measure(target, command or (), measure, capture)
    added = dict(map(knob, add or ()))
    options = TuneOptions(
        on=on,
        objective=objective,
        trials=trials,
        budget_s=seconds(budget),
        storage=storage,
        jobs=jobs,
        costs=costs,
        space=SpaceOptions(
            forbidden=tuple(forbid or ()),
            added=added,
            only=tuple(only or ()),
            placeholders=placeholders_in(added, job.command) if job is not None else (),
        ),
        most_memory_bytes=size(memory),
        tolerance=tolerance,
        timeout_s=seconds(timeout),
        ray=ray,
        measure=job,
    )
    with working_folder(study, DEFAULT_STUDY) as folder, LiveTable() as table:
        options = replace(options, folder=folder)
        found = tune(target, options, on_result=table.add, progress=table.progress)
    found = replace(found, folder=named(study))
    if json:
        return show_json(tuning_json(found))
    show(lambda width: render_tuning(found, width, top))
