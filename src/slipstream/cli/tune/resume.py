"""`slipstream tune resume DIR`: continue a study, or join one that is running."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, TopOption, show, show_json
from slipstream.cli.study_place import named, working_folder
from slipstream.cli.tune.common import (
    DEFAULT_STUDY,
    JobsOption,
    LiveTable,
    MoreTimeOption,
    RayOption,
    StudyArgument,
    seconds,
)


def resume(
    study: StudyArgument,
    budget: MoreTimeOption = None,
    trials: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Maximum number of candidates, including earlier ones."
        ),
    ] = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    top: TopOption = None,
    json: JsonOption = False,
) -> None:
    """Continue a study; interrupted trials are tried again.

    Several processes can work on a study at once, on several machines if it has a --storage.
    """
    from slipstream.outputs.terminal.compiled.tune import render_tuning, tuning_json
    from slipstream.tune.studies import resume as continue_study
    from slipstream.tune.studies import show as read

    with working_folder(study, DEFAULT_STUDY) as folder:
        known = read(folder).baseline
        with LiveTable(known.step_us if known is not None else None) as table:
            found = continue_study(
                folder,
                jobs=jobs,
                trials=trials,
                budget_s=seconds(budget) if budget else None,
                ray=ray,
                on_result=table.add,
                progress=table.progress,
            )
    found = replace(found, folder=named(study))
    if json:
        return show_json(tuning_json(found))
    show(lambda width: render_tuning(found, width, top))
