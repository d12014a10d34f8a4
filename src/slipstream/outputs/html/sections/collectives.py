"""Collectives: bytes, bandwidth and stragglers."""

from __future__ import annotations

from slipstream.analyses.collectives import CollectiveGroup, Collectives
from slipstream.outputs.formatting import count_text, file_name, plural, share_text, time_text
from slipstream.outputs.html.charts import share_bar
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section, notes_of
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    bytes_cell,
    count_cell,
    named_cell,
    number,
    rate_cell,
    share_cell,
    table,
    us_cell,
    with_equals,
)
from slipstream.units import format_bytes


def collectives_section(result: Collectives) -> Section:
    """Every collective of the steps."""
    if not result.rows:
        text = "No collectives in this program."
        return Section("collectives", "Collectives", tag("p", text, class_="empty"))
    body = join((_rows(result), _stragglers(result), notes_of(result.notes)))
    return Section("collectives", "Collectives", body, _lede(result), str(len(result.rows)))


def _lede(result: Collectives) -> str:
    total = sum(row.per_step_us for row in result.rows)
    exposed = sum(row.exposed_us for row in result.rows)
    span = "per step" if result.steps else "in total"
    text = (
        f"{plural(len(result.rows), 'collective')}, {time_text(total)} {span}, "
        f"{time_text(exposed)} of it exposed."
    )
    if result.link_bandwidth:
        rate = format_bytes(result.link_bandwidth)
        text += f" A link of {result.model} carries {rate}/s in one direction ({result.link})."
    late = result.straggler
    if late is not None:
        text += (
            f" {late.device} of {late.host} arrives last at {share_text(late.last_share, 0)} of "
            f"them; the others wait {time_text(late.caused_us)} per step for it."
        )
    return text


def _rows(result: Collectives) -> Html:
    has_wait = any(row.wait_us is not None for row in result.rows)
    has_algorithm = any(row.algorithm for row in result.rows)
    columns = [
        TableColumn("Collective"),
        TableColumn("Source", is_wide=True),
        number("Payload"),
        number("Devices", wide=True),
        number("Events per step", wide=True),
        number("Per step"),
        number("Exposed"),
        number("Median", wide=True),
        number("Bus bandwidth", wide=True),
        number("Of the link", wide=True),
        *([number("Wait for others", wide=True)] if has_wait else []),
        *([TableColumn("Algorithm", is_wide=True)] if has_algorithm else []),
    ]
    rows = [_row(row, has_wait, has_algorithm) for row in result.groups]
    return table(columns, rows, "Collectives", more="slipstream collectives --json")


def _row(row: CollectiveGroup, has_wait: bool, has_algorithm: bool) -> Row:
    link = (
        Cell(
            share_bar(row.link_share, share_text(row.link_share, 0), "communication"),
            row.link_share,
        )
        if row.link_share is not None
        else Cell("–", None)
    )
    groups = f" × {row.groups}" if row.groups and row.groups > 1 else ""
    size = Cell(f"{row.group_size}{groups}" if row.group_size else "–", row.group_size)
    return [
        named_cell(
            row.description or row.kind, with_equals(row.instruction, len(row.instructions))
        ),
        tag("span", file_name(row.source), class_="c at"),
        bytes_cell(row.bytes),
        size,
        Cell(count_text(row.per_step_count), row.per_step_count),
        us_cell(row.per_step_us),
        us_cell(row.exposed_us),
        us_cell(row.median_us),
        rate_cell(row.bus_bandwidth),
        link,
        *([us_cell(row.wait_us)] if has_wait else []),
        *([row.algorithm] if has_algorithm else []),
    ]


def _stragglers(result: Collectives) -> Html | None:
    if not result.stragglers:
        return None
    columns = [
        TableColumn("Device"),
        TableColumn("Host", is_wide=True),
        number("Arrives last"),
        number("Of", wide=True),
        number("Others wait"),
        number("Waits itself"),
    ]
    rows: list[Row] = [
        [
            one.device,
            one.host,
            share_cell(one.last_share, 0),
            count_cell(one.meetings),
            us_cell(one.caused_us),
            us_cell(one.waited_us),
        ]
        for one in result.stragglers
    ]
    text = (
        "Clocks were aligned by the ends of collectives, which then agree within "
        f"{time_text(result.alignment_us)}."
        if result.alignment_us is not None
        else ""
    )
    made = table(columns, rows, "Stragglers")
    note = tag("p", text, class_="note") if text else None
    return join((tag("h3", "Stragglers, per step"), made, note))
