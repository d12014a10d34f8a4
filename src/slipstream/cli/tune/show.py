"""`slipstream tune show DIR`: a study as it stands."""

from __future__ import annotations

from pathlib import Path

from slipstream.cli.common import JsonOption, TopOption, show_json
from slipstream.cli.common import show as print_text
from slipstream.cli.tune.common import StudyArgument


def show(study: StudyArgument, top: TopOption = None, json: JsonOption = False) -> None:
    """A study as it stands: the best so far, the ranking, what each knob did."""
    from slipstream.outputs.tuning import render_tuning, tuning_json
    from slipstream.tune.begin import show as read

    found = read(Path(study))
    if json:
        return show_json(tuning_json(found))
    print_text(lambda width: render_tuning(found, width, top))
