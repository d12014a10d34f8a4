"""Idle time by cause, and the longest gaps."""

from __future__ import annotations

from slipstream.analyses.gaps import CAUSES, Gaps
from slipstream.outputs.formatting import file_name, plural, ratio, share_text, time_text
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
    for cause, us in result.by_cause.items():
        share = ratio(us, result.idle_us)
        rows += [
            tag("span", CAUSES[cause], class_="name"),
            meter(share, "accent", "thin"),
            tag("span", time_text(us), class_="amount"),
        ]
    caption = f"By cause, mean of {plural(result.steps, 'step')}" if result.steps else "By cause"
    causes = join((tag("h3", caption), tag("div", rows, class_="bars causes")))
    body = join((causes, _gaps(result), notes_of(result.notes)))
    lede = (
        f"Nothing runs for {time_text(times.idle_us)} of the "
        f"{'median step' if result.steps else 'recording'} "
        f"({share_text(ratio(times.idle_us, times.wall_us))}), in {plural(result.count, 'gap')}."
    )
    if result.waiting_us:
        waiting = time_text(result.waiting_us)
        lede += f" Compute waits another {waiting} for communication and copies."
    return Section("idle", "Idle time", body, lede)


def _gaps(result: Gaps) -> Html:
    several = len({(gap.host, gap.device) for gap in result.longest}) > 1
    columns = [
        number("Gap"),
        TableColumn("Cause"),
        *([TableColumn("Device", is_wide=True)] if several else []),
        TableColumn("Ran before", is_wide=True, is_code=True),
        TableColumn("Ran after", is_wide=True),
        TableColumn("Host activity", is_wide=True),
        number("Step", wide=True),
    ]
    rows: list[Row] = [
        [
            us_cell(gap.us),
            gap.cause,
            *([gap.device] if several else []),
            gap.before,
            named_cell(gap.after or "–", file_name(gap.after_source)),
            gap.doing or "–",
            Cell(str(gap.step), gap.step),
        ]
        for gap in result.longest
    ]
    made = table(columns, rows, "Longest gaps", 8, "slipstream gaps --json")
    return join((tag("h3", "Longest gaps"), made))
