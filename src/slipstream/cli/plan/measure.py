"""`slipstream plan measure DIR`: time candidates of a plan on the GPUs that are here."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, TopOption
from slipstream.cli.plan.common import (
    DEFAULT_STUDY,
    HtmlOption,
    LiveCandidates,
    PlanArgument,
    show_plan,
)
from slipstream.cli.study_place import named, working_folder
from slipstream.cli.tune.common import TimeoutOption, seconds


def measure(
    study: PlanArgument,
    best: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many of the best to measure.")
    ] = 4,
    bad: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many that should be slower.")
    ] = 2,
    is_all: Annotated[
        bool, typer.Option("--all", help="Measure every combination that fits.")
    ] = False,
    rounds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Visits to each combination.  [default: until the result is clear; 3 with --all]",
        ),
    ] = None,
    steps: Annotated[int, typer.Option(metavar="N", min=1, help="Steps of each visit.")] = 5,
    budget: Annotated[str, typer.Option(metavar="TIME", help="Time for measuring.")] = "10m",
    timeout: TimeoutOption = "5m",
    html: HtmlOption = None,
    top: TopOption = None,
    json: JsonOption = False,
) -> None:
    """Time candidates of a plan on the GPUs that are here, and rank the plan again.

    The plan may have been made elsewhere, without a GPU: copy its folder here. Combinations take
    turns on the GPUs, several steps at a time.
    """
    from slipstream.plan.measure.measure import measure as measure_plan
    from slipstream.plan.measure.selection import MeasureOptions

    options = MeasureOptions(
        best=best,
        bad=bad,
        is_all=is_all,
        rounds=rounds,
        steps=steps,
        budget_s=seconds(budget),
        timeout_s=seconds(timeout),
    )
    with working_folder(study, DEFAULT_STUDY) as folder, LiveCandidates() as live:
        found = measure_plan(folder, options, progress=live.progress)
    show_plan(replace(found, folder=named(study)), top, html, json)
