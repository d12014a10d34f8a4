"""`slipstream plan resume DIR`: continue a plan, or join one that is being made."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, TopOption
from slipstream.cli.plan.common import (
    DEFAULT_STUDY,
    FlagsOption,
    HtmlOption,
    LiveCandidates,
    PlanArgument,
    check_recommended,
    resumable,
    show_plan,
)
from slipstream.cli.study_place import named, working_folder
from slipstream.cli.tune.common import JobsOption, MoreTimeOption, RayOption, seconds


def resume(
    study: PlanArgument,
    budget: MoreTimeOption = None,
    trials: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Maximum number of combinations, including earlier ones."
        ),
    ] = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    flags: FlagsOption = 0,
    html: HtmlOption = None,
    top: TopOption = None,
    json: JsonOption = False,
) -> None:
    """Continue a plan; interrupted combinations are tried again."""
    from slipstream.plan.plans import resume as continue_plan

    with (
        working_folder(study, DEFAULT_STUDY) as folder,
        resumable(folder, study),
        LiveCandidates() as live,
    ):
        found = continue_plan(
            folder,
            jobs=jobs,
            trials=trials,
            budget_s=seconds(budget) if budget else None,
            ray=ray,
            flags=flags,
            on_result=live.add,
            progress=live.progress,
        )
    show_plan(replace(found, folder=named(study)), top, html, json)
    check_recommended(found)
