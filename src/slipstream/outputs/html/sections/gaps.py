"""Idle time by cause, and where it is."""

from __future__ import annotations

from slipstream.analyses.gaps import CAUSES, Gaps
from slipstream.outputs.formatting import (
    count_text,
    file_name,
    plural,
    ratio,
    share_text,
    time_text,
)
from slipstream.outputs.html.charts import meter
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section, notes_of
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    named_cell,
    number,
    table,
    us_cell,
)


def gaps_section(result: Gaps) -> Section:
    """Idle time by cause."""
    times = result.per_step
    if not result.idle_us:
        text = "The device is never idle during the steps."
        return Section("idle", "Idle time", tag("p", text, class_="empty"))
    rows = []
    for cause, us in sorted(result.by_cause.items(), key=lambda item: -item[1]):
        share = ratio(us, result.idle_us)
        rows += [
            tag("span", CAUSES[cause], class_="name"),
            meter(share, "accent", "thin"),
            tag("span", time_text(us), class_="amount"),
        ]
    caption = f"By cause, mean of {plural(result.steps, 'step')}" if result.steps else "By cause"
    causes = join((tag("h3", caption), tag("div", rows, class_="bars causes")))
    body = join((causes, _places(result), notes_of(result.notes)))
    lede = (
        f"Nothing runs for {time_text(times.idle_us)} of the "
        f"{'median step' if result.steps else 'recording'} "
        f"({share_text(ratio(times.idle_us, times.wall_us))}), in {plural(result.count, 'gap')}."
    )
    if result.waiting_us:
        waiting = time_text(result.waiting_us)
        lede += f" Compute waits another {waiting} for communication and copies."
    return Section("idle", "Idle time", body, lede)


def _places(result: Gaps) -> Html:
    per_step = "Per step" if result.steps else "Total"
    columns = [
        number(per_step),
        number("Gaps per step" if result.steps else "Gaps"),
        number("Longest"),
        TableColumn("Cause"),
        TableColumn("Ran before", is_wide=True, is_code=True),
        TableColumn("Ran after", is_wide=True),
        TableColumn("Host activity, longest gap", is_wide=True),
    ]
    rows: list[Row] = [
        [
            us_cell(place.per_step_us),
            Cell(count_text(place.per_step_count), place.per_step_count),
            us_cell(place.longest.us),
            place.cause,
            place.before or "–",
            named_cell(place.after or "–", file_name(place.longest.after_source)),
            place.longest.doing or "–",
        ]
        for place in result.groups
    ]
    made = table(columns, rows, "Where the device is idle", 8, "slipstream gaps --json")
    return join((tag("h3", "Where the device is idle"), made))
