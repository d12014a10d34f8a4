"""The candidates of a plan: places that the scripts of the page fill."""

from __future__ import annotations

from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.plan_data import choice_names
from slipstream.results.planning import Plan


def choices_section(plan: Plan) -> Section:
    """Every candidate as a line through its values; two choices as a matrix."""
    lede = (
        "Each line is a candidate, from its choices to its throughput. A value shows the best "
        "throughput with it, relative to the best of all. Click a value, or drag along the axes of "
        "memory and throughput, to filter; click a line to select it."
    )
    body = [
        tag("div", class_="key-row", id="axes-key"),
        tag(
            "div",
            class_="axes",
            id="axes",
            tabindex=0,
            role="region",
            aria_label="Choices against throughput",
        ),
    ]
    if len(choice_names(plan)) > 1:
        body.append(_matrix())
    return Section("choices", "Choices", join(body), lede)


def _matrix() -> Html:
    def select(name: str, label: str) -> Html:
        return tag("label", f"{label} ", tag("select", id=f"matrix-{name}"))

    tools = tag("div", select("down", "Down"), select("across", "Across"), class_="maptools")
    heading = tag("h3", "Two choices at a time")
    lede = tag(
        "p",
        "The best throughput with both values, whatever the other choices. Click one to select "
        "its candidate.",
        class_="note",
    )
    place = tag("div", id="matrix", class_="scroll", role="region", aria_label="Two choices")
    return tag("div", heading, lede, tools, place, id="matrix-part")


def front_section() -> Section:
    """Throughput against memory."""
    lede = (
        "Peak memory of a device against throughput. No other candidate beats those on the line "
        "in both."
    )
    body = join(
        (
            tag("div", class_="key-row", id="front-key"),
            tag(
                "div",
                class_="front",
                id="front-plot",
                tabindex=0,
                role="application",
                aria_label="Throughput against memory: arrow keys go from candidate to candidate, "
                "Enter selects one",
            ),
        )
    )
    return Section("front", "Memory", body, lede)


def steps_section() -> Section:
    """The steps of a few candidates side by side."""
    lede = (
        "Where the time of a step goes: the best, the next ones, and those that you select. All "
        "bars have one scale."
    )
    body = join(
        (
            tag("div", class_="maptools", id="steps-tools"),
            tag("div", class_="steps", id="steps-view"),
        )
    )
    return Section("steps", "Steps", body, lede)


def candidates_section(plan: Plan) -> Section:
    """All candidates in a table."""
    count = sum(len(one.candidates) for one in plan.machines)
    search = tag(
        "input",
        type="search",
        id="plan-search",
        placeholder="Search: tensor=4 dots",
        aria_label="Search candidates",
        spellcheck="false",
    )
    tools = tag(
        "div",
        search,
        tag("select", id="plan-status", aria_label="Status"),
        tag("span", id="plan-count", role="status"),
        class_="searchbar",
    )
    table = tag("table", tag("thead"), tag("tbody"), id="plan-table", aria_label="Candidates")
    box = tag("div", table, class_="scroll", role="region", aria_label="Candidates", tabindex=0)
    more = tag("button", type="button", class_="button", id="plan-more", hidden=True)
    body = join((tools, box, more))
    return Section("candidates", "Candidates", body, badge=f"{count:,}")
