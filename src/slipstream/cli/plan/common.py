"""What the commands of `plan` share: options, parsing, live results and the output."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from slipstream.cli.common import show, show_json
from slipstream.cli.live_lines import LiveLines
from slipstream.errors import BadInput, CheckFailed

if TYPE_CHECKING:
    from slipstream.machines.machine import Machine
    from slipstream.results.planning import Plan
    from slipstream.tune.outcome import Outcome
    from slipstream.tune.search.study import Candidate

DEFAULT_STUDY = "slipstream-plan"
PlanArgument = Annotated[str, typer.Argument(metavar="DIR", help="Folder of the plan.")]
HtmlOption = Annotated[str | None, typer.Option(metavar="FILE", help="Also write an HTML page.")]
FlagsOption = Annotated[
    int,
    typer.Option("--flags", metavar="N", min=0, help="Then tune the flags of the best N layouts."),
]
LINE = 120
"""columns of a live row"""


def percentage(text: str) -> float:
    """Parse `8%` or `0.08`."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(%?)", text.strip())
    found = float(match[1]) / (100 if match[2] else 1) if match else None
    if found is None or found >= 1:
        raise BadInput(f"--margin {text!r} is not a share of the memory; write 8% or 0.08")
    return found


def prices(text: str | None) -> dict[str, float]:
    """Parse `2.50`, or `H100=2.50,H200=3.80`."""
    found: dict[str, float] = {}
    for part in (text or "").split(",") if text else ():
        name, _, price = part.rpartition("=")
        try:
            found[name.strip()] = float(price)
        except ValueError:
            found[name.strip()] = 0.0
        if not 0 < found[name.strip()] < float("inf"):
            raise BadInput(
                f"--price {text!r}: {price.strip()!r} is no price; write dollars for one GPU-hour: "
                "2.50, or H100=2.50,H200=3.80"
            )
    return found


@contextmanager
def resumable(folder: Path, study: str) -> Iterator[None]:
    """Say after Ctrl-C how to go on, if there is a plan by then."""
    from slipstream.plan.plan_folder import has_plan

    try:
        yield
    except KeyboardInterrupt:
        if has_plan(folder):
            again = f"slipstream plan resume {shlex.quote(study)}"
            typer.echo(f"interrupted; what was found is kept, continue with: {again}", err=True)
        raise


def show_plan(plan: Plan, top: int | None, html: str | None, json: bool) -> None:
    """Write the page, and print the plan as text or JSON."""
    from slipstream.outputs.terminal.compiled.plan import plan_json, render_plan

    if html is not None:
        from slipstream.outputs.html.plan import write_plan_page

        write_plan_page(plan, html)
    if json:
        return show_json(plan_json(plan), html)
    show(lambda width: render_plan(plan, width, top), html)


def check_recommended(plan: Plan) -> None:
    """CheckFailed if nothing that was tried can be run on a machine, as a script wants to know."""
    without = [one.machine for one in plan.machines if one.best is None]
    if without:
        raise CheckFailed(
            f"found no combination that can be run on {', '.join(without)}, for the reasons above; "
            "try other values, --vary NAME=VALUE,…, or a larger machine, --on"
        )


class LiveCandidates(LiveLines):
    """A line for each candidate."""

    def add(self, machine: Machine, candidate: Candidate, outcome: Outcome) -> None:
        from slipstream.outputs.terminal.compiled.plan import candidate_line
        from slipstream.plan.report.report import candidate_of

        found = candidate_of(candidate.number, candidate.settings, outcome)
        unit = str((outcome.details or {}).get("unit", ""))
        self.show(candidate_line(found, unit, LINE))
