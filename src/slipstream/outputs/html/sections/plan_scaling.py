"""The best candidate on machines of several sizes: a plot and a table."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.outputs.formatting import amount_text, share_text
from slipstream.outputs.html.charts import share_bar
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.plan_data import strong_points, value_text
from slipstream.outputs.html.sections.plan_best import cost_text
from slipstream.outputs.html.tables import Cell, Row, TableColumn, number, table, us_cell
from slipstream.results.planning import Choices, Plan, ScalingPoint


def scaling_section(plan: Plan) -> Section:
    """Throughput over the number of devices."""
    body = join(
        (
            tag("div", class_="scaling", id="scaling-plot"),
            tag("ul", [tag("li", one) for one in plan.reasons], class_="reasons")
            if plan.reasons
            else None,
            _table(plan, plan.scaling, "Scaling"),
            _strong(plan),
        )
    )
    return Section("scaling", "Scaling", body, _lede(plan))


def _lede(plan: Plan) -> str:
    if plan.reasons:
        return "The best candidate on each machine."
    first, last = plan.scaling[0], plan.scaling[-1]
    kept = f"keeps {share_text(last.efficiency, 0)} of the throughput of each device"
    lost = f"exposed communication grows from {share_text(first.exposed_share, 0)} to "
    if last.exposed_share <= first.exposed_share:
        lost = f"exposed communication goes from {share_text(first.exposed_share, 0)} to "
    return (
        f"From {first.devices:,} to {last.devices:,} devices, the best layout {kept}; {lost}"
        f"{share_text(last.exposed_share, 0)} of the step."
    )


def _strong(plan: Plan) -> Html | None:
    """The same amount of work on every machine."""
    points = strong_points(plan)
    if not points:
        return None
    heading = tag("h3", "Strong scaling: the same work in a step")
    return join((heading, _table(plan, points, "Strong scaling")))


def _table(plan: Plan, points: Sequence[ScalingPoint], label: str) -> Html:
    has_cost = any(one.cost_per_work is not None for one in points)
    columns = [
        TableColumn("Machine"),
        number(f"{plan.unit}/s"),
        number("Per device", wide=True),
        number("Efficiency"),
        number("Step", wide=True),
        number("Exposed", wide=True),
        *([number("Cost", wide=True)] if has_cost else []),
        TableColumn("Scaling", is_wide=True),
        TableColumn("Best choices", is_wide=True),
    ]
    rows: list[Row] = [
        [
            one.machine,
            _amount(one.work_per_s),
            _amount(one.work_per_s_per_device),
            Cell(share_text(one.efficiency, 0), one.efficiency),
            us_cell(one.step_us),
            Cell(
                share_bar(one.exposed_share, share_text(one.exposed_share), "communication"),
                one.exposed_share,
            ),
            *([_cost(one, plan.unit)] if has_cost else []),
            _kind(one, at),
            _changed(one.choices, points[at - 1].choices if at else None),
        ]
        for at, one in enumerate(points)
    ]
    return table(columns, rows, label, shown=20)


def _amount(value: float) -> Cell:
    return Cell(amount_text(value), value)


def _cost(one: ScalingPoint, unit: str) -> Cell:
    if one.cost_per_work is None:
        return Cell("–", None)
    shown, many = cost_text(one.cost_per_work, unit)
    return Cell(join((shown, tag("small", many))), one.cost_per_work)


def _kind(one: ScalingPoint, at: int) -> str:
    """Strong scaling divides the same work, weak scaling adds to it."""
    if at == 0:
        return "reference"
    return "strong" if one.same_work else "weak"


def _changed(choices: Choices, before: Choices | None) -> Html:
    """All choices; those that differ from the machine above are bold."""
    made: list[Html | str] = []
    for name, value in choices.items():
        is_new = before is not None and before.get(name) != value
        text = f"{name} {value_text(value)}"
        made += [tag("b", text) if is_new else text, " · "]
    return join(made[:-1])
