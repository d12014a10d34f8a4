"""What was searched: how many combinations, how each was settled, what was left out, and why."""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.outputs.formatting import time_text
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.tables import Row, TableColumn, count_cell, number, table
from slipstream.results.planning import Plan, PlanCounts

SHOWN = 8


def search_section(plan: Plan) -> Section:
    """All machines."""
    return Section("search", "Search", join((_counts(plan), _skipped(plan), _facts(plan))))


def _counts(plan: Plan) -> Html | None:
    if not plan.machines:
        return None
    columns = [
        TableColumn("Machine"),
        number("Combinations"),
        number("Settled by bounds"),
        number("Compiled"),
        number("Same program", wide=True),
        number("Failed", wide=True),
        number("Measured", wide=True),
        TableColumn("Stopped because", is_wide=True),
    ]
    rows: list[Row] = [
        [
            one.machine,
            *map(count_cell, _numbers(one.counts)),
            one.stopped_because or "–",
        ]
        for one in plan.machines
    ]
    return table(columns, rows, "What was searched", shown=20)


def _numbers(counts: PlanCounts) -> tuple[int, ...]:
    return (
        counts.combinations,
        counts.bounded,
        counts.compiled,
        counts.same,
        counts.failed,
        counts.measured,
    )


def _skipped(plan: Plan) -> Html | None:
    several = len(plan.machines) > 1
    rows: list[Row] = [
        [*([one.machine] if several else []), text] for one in plan.machines for text in one.skipped
    ]
    if not rows:
        return None
    columns = [*([TableColumn("Machine")] if several else []), TableColumn("Combination and why")]
    return join((tag("h3", "Skipped"), table(columns, rows, "Skipped", shown=SHOWN)))


def _facts(plan: Plan) -> Html:
    made = [(tag("dt", name), tag("dd", text)) for name, text in _pairs(plan)]
    return tag("dl", made, class_="pairs")


def _pairs(plan: Plan) -> Iterator[tuple[str, str]]:
    yield "Target", plan.target
    yield "Objective", plan.objective
    if plan.jaxlib:
        yield "Compiler", f"jaxlib {plan.jaxlib}"
    if plan.seconds:
        yield "Time", time_text(plan.seconds * 1e6)
    if plan.folder:
        yield "Study", plan.folder
