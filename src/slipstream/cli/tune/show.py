"""`slipstream tune show DIR`: a study as it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, TopOption, show_json
from slipstream.cli.common import show as print_text
from slipstream.cli.tune.common import StudyArgument


def show(
    study: StudyArgument,
    top: TopOption = None,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write it as a page.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """A study as it stands: the best so far, the ranking, what each knob did."""
    from slipstream.outputs.terminal.tune import render_tuning, tuning_json
    from slipstream.tune.studies import show as read

    found = read(Path(study))
    if html is not None:
        from slipstream.outputs.html.study import study_page
        from slipstream.writing import atomic_write

        with atomic_write(html) as temporary:
            temporary.write_text(study_page(found), encoding="utf-8")
    if json:
        return show_json(tuning_json(found))
    print_text(lambda width: render_tuning(found, width, top))
