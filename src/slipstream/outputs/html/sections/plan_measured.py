"""Candidates that were run: how close the predictions were, and whether their order was right."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from slipstream.outputs.formatting import amount_text, plural, share_text, time_text
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.plan_data import value_text
from slipstream.outputs.html.sections.plan_best import machine_panels
from slipstream.outputs.html.tables import Cell, Row, TableColumn, number, table, us_cell
from slipstream.results.planning import MEASURED, Candidate, MachinePlan, Plan


def measured_section(plan: Plan) -> Section | None:
    """All machines; None if nothing was run."""
    found = [measured(one) for one in plan.machines]
    if not any(found):
        return None
    lede = "Candidates that were run, the fastest first, next to what was predicted for them."
    panels = machine_panels(plan, [_panel(plan, at, ran) for at, ran in enumerate(found)])
    return Section("measured", "Measured", panels, lede, str(sum(map(len, found))))


def _panel(plan: Plan, at: int, found: Sequence[Candidate]) -> Html:
    name = plan.machines[at].machine
    if not found:
        return tag("p", f"Nothing was run on {name}.", class_="empty")
    return join((tag("p", _agreement(found), class_="note"), _table(plan, found, f"Ran on {name}")))


def measured(machine: MachinePlan) -> list[Candidate]:
    """Candidates with a measured step and a prediction, the most work per second first."""
    found = [
        one
        for one in machine.candidates
        if one.basis == MEASURED and one.step_us and one.predicted_us
    ]
    return sorted(found, key=_rate, reverse=True)


def _rate(one: Candidate) -> float:
    return one.work_per_s or 1e6 / (one.step_us or 1.0)


def _predicted_rate(one: Candidate) -> float:
    return _rate(one) * (one.step_us or 1.0) / (one.predicted_us or 1.0)


def _error(one: Candidate) -> float:
    return (one.predicted_us or 0.0) / (one.step_us or 1.0) - 1


def _agreement(found: Sequence[Candidate]) -> str:
    errors = [abs(_error(one)) for one in found]
    mean, most = share_text(sum(errors) / len(errors)), share_text(max(errors))
    said = f"Predicted steps are {mean} off on average, at most {most}."
    pairs = list(combinations(found, 2))
    if not pairs:
        return f"The predicted step is {mean} off."
    right = sum(_predicted_rate(fast) >= _predicted_rate(slow) for fast, slow in pairs)
    return f"{said} The predicted order is right for {right} of {plural(len(pairs), 'pair')}."


def _table(plan: Plan, found: Sequence[Candidate], label: str) -> Html:
    columns = [
        number("#"),
        number(f"{plan.unit}/s"),
        number("Measured step"),
        number("Predicted"),
        number("Error"),
        TableColumn("Choices", is_wide=True),
    ]
    return table(columns, [_row(one) for one in found], label)


def _row(one: Candidate) -> Row:
    pick = tag("button", str(one.number), type="button", class_="pick", data_pick=one.number)
    step = one.step_us or 0.0
    interval = (
        tag("small", f"{time_text(one.low_us)} … {time_text(one.high_us)}")
        if one.low_us is not None and one.high_us is not None
        else None
    )
    return [
        Cell(pick, one.number),
        Cell(amount_text(_rate(one)), _rate(one)),
        Cell(join((time_text(step), interval)), step),
        us_cell(one.predicted_us),
        Cell(f"{_error(one):+.1%}", _error(one)),
        " · ".join(f"{name} {value_text(value)}" for name, value in one.choices.items()),
    ]
