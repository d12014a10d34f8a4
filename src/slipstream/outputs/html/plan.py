"""A plan as a page: what to run, choices against throughput, memory, steps, scaling, candidates."""

from __future__ import annotations

import os
from collections.abc import Iterator

from slipstream.outputs.formatting import file_name, plural
from slipstream.outputs.html.page import Page, Section, page
from slipstream.outputs.html.plan_data import plan_data
from slipstream.outputs.html.sections.plan_best import best_section
from slipstream.outputs.html.sections.plan_candidates import (
    candidates_section,
    choices_section,
    front_section,
    steps_section,
)
from slipstream.outputs.html.sections.plan_measured import measured_section
from slipstream.outputs.html.sections.plan_scaling import scaling_section
from slipstream.outputs.html.sections.plan_search import search_section
from slipstream.results.planning import Plan
from slipstream.writing import atomic_write

SCRIPTS = (
    "numbers.js",
    "plan_state.js",
    "plan_drawing.js",
    "plan_axes.js",
    "plan_matrix.js",
    "plan_front.js",
    "plan_steps.js",
    "plan_scaling.js",
    "plan_table.js",
    "plan.js",
)
"""in the order in which the page loads them; `assets/plan.js` puts them together"""
KEYS = (
    ("/", "search candidates"),
    ("← →", "in the plot of memory: the next candidate"),
    ("Enter", "select it"),
    ("Esc", "clear the selection"),
)


def write_plan_page(plan: Plan, path: str | os.PathLike[str]) -> None:
    """Write the page to a file."""
    text = plan_page(plan).encode("utf-8", "replace")  # names of files may be any bytes
    with atomic_write(path) as temporary:
        temporary.write_bytes(text)


def plan_page(plan: Plan) -> str:
    """The whole page."""
    return page(plan_content(plan))


def plan_content(plan: Plan) -> Page:
    """What the page has."""
    machines = ", ".join(one.machine for one in plan.machines)
    count = sum(len(one.candidates) for one in plan.machines)
    facts = [machines, plural(count, "candidate"), f"jaxlib {plan.jaxlib}" if plan.jaxlib else ""]
    return Page(
        title=f"{plan.target} on {machines} · slipstream plan",
        heading=plan.target if " " in plan.target else file_name(plan.target),
        facts=facts,
        sections=list(_sections(plan)),
        data=plan_data(plan),
        styles=("report.css", "plan.css"),
        scripts=SCRIPTS,
        keys=KEYS,
    )


def _sections(plan: Plan) -> Iterator[Section]:
    yield best_section(plan)
    several = any(len(one.candidates) > 1 for one in plan.machines)
    if several:
        yield choices_section(plan)
    if several and any(c.memory_bytes for one in plan.machines for c in one.candidates):
        yield front_section()
    if any(c.parts_us for one in plan.machines for c in one.candidates):
        yield steps_section()
    ran = measured_section(plan)
    if ran is not None:
        yield ran
    if len(plan.scaling) > 1:
        yield scaling_section(plan)
    if any(one.candidates for one in plan.machines):
        yield candidates_section(plan)
    yield search_section(plan)
