"""`slipstream tune show DIR`: the current state of a study."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from slipstream.cli.common import JsonOption, TopOption, show_json, with_tables
from slipstream.cli.common import show as print_text
from slipstream.cli.study_place import named, readable_folder
from slipstream.cli.tune.common import StudyArgument


@with_tables
def show(
    study: StudyArgument,
    top: TopOption = None,
    html: Annotated[
        str | None, typer.Option(metavar="FILE", help="Also write an HTML page.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show a study: the best so far, the ranking, each knob's effect."""
    from slipstream.outputs.terminal.compiled.tune import render_tuning, tuning_json
    from slipstream.tune.studies import show as read

    found = replace(read(readable_folder(study)), folder=named(study))
    if html is not None:
        from slipstream.outputs.html.study import study_page
        from slipstream.writing import atomic_write

        with atomic_write(html) as temporary:
            temporary.write_text(study_page(found), encoding="utf-8")
    if json:
        return show_json(tuning_json(found), html)
    print_text(lambda width: render_tuning(found, width, top), html)
