"""`slipstream tune resume DIR`: go on with a study, or help with one that others work on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, TopOption, show, show_json
from slipstream.cli.tune.common import JobsOption, LiveTable, RayOption, StudyArgument, seconds


def resume(
    study: StudyArgument,
    budget: Annotated[
        str | None, typer.Option(metavar="TIME", help="Time for it.  [default: as it began]")
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(metavar="N", min=1, help="Candidates at most, those before included."),
    ] = None,
    jobs: JobsOption = None,
    ray: RayOption = None,
    top: TopOption = None,
    json: JsonOption = False,
) -> None:
    """Go on with a study: what is done stays, what was interrupted is tried again.

    Several may do so at once, on several machines if the study has a --storage.
    """
    from slipstream.outputs.terminal.tune import render_tuning, tuning_json
    from slipstream.tune.studies import resume as go_on
    from slipstream.tune.studies import show as read

    known = read(Path(study)).baseline
    with LiveTable(known.step_us if known is not None else None) as table:
        found = go_on(
            Path(study),
            jobs=jobs,
            trials=trials,
            budget_s=seconds(budget) if budget else None,
            ray=ray,
            on_result=table.told,
            progress=table.progress,
        )
    if json:
        return show_json(tuning_json(found))
    show(lambda width: render_tuning(found, width, top))
