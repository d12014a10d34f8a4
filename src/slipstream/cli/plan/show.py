"""`slipstream plan show DIR`: the current state of a plan."""

from __future__ import annotations

from pathlib import Path

from slipstream.cli.common import JsonOption, TopOption
from slipstream.cli.plan.common import HtmlOption, PlanArgument, show_plan


def show(
    study: PlanArgument,
    html: HtmlOption = None,
    top: TopOption = None,
    json: JsonOption = False,
) -> None:
    """Show a plan: what to run, why, and what else was tried."""
    from slipstream.plan.plans import show as read

    show_plan(read(Path(study)), top, html, json)
