"""`slipstream plan show DIR`: the current state of a plan."""

from __future__ import annotations

from dataclasses import replace

from slipstream.cli.common import JsonOption, TopOption, with_tables
from slipstream.cli.plan.common import HtmlOption, PlanArgument, show_plan
from slipstream.cli.study_place import named, readable_folder


@with_tables
def show(
    study: PlanArgument,
    html: HtmlOption = None,
    top: TopOption = None,
    json: JsonOption = False,
) -> None:
    """Show a plan: what to run, why, and what else was tried."""
    from slipstream.plan.plans import show as read

    found = replace(read(readable_folder(study)), folder=named(study))
    show_plan(found, top, html, json)
