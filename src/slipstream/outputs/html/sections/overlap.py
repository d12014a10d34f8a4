"""Overlap: exposed and hidden collectives and copies, and their slack."""

from __future__ import annotations

from slipstream.analyses.overlap import Overlap, Overlapped
from slipstream.analyses.slack import Slack, SlackRow
from slipstream.outputs.formatting import file_name, share_text, time_text
from slipstream.outputs.html.charts import BarPart, bar
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section, notes_of
from slipstream.outputs.html.report_data import Results
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    bytes_cell,
    named_cell,
    number,
    share_cell,
    table,
    us_cell,
)

HIDERS = 3


def overlap_section(found: Results) -> Section:
    """Which compute hid which collective and copy."""
    result = found.overlap
    if not result.ops:
        text = "This program has no collectives and no copies."
        return Section("overlap", "Overlap", tag("p", text, class_="empty"))
    body = join((_phases(result), _ops(result), _slack(found.slack)))
    return Section("overlap", "Overlap", body, _lede(result))


def _lede(result: Overlap) -> str:
    times = result.per_step
    parts = []
    for name, exposed, total in (
        ("communication", times.exposed_communication_us, times.communication_us),
        ("copies", times.exposed_copy_us, times.copy_us),
    ):
        if total:
            hidden = share_text(1 - exposed / total, 0)
            parts.append(f"of {time_text(total)} of {name}, {hidden} overlaps compute")
    text = "; ".join(parts)
    return text[:1].upper() + text[1:] + "." if text else ""


def _phases(result: Overlap) -> Html | None:
    if len(result.phases) < 2:
        return None
    columns = [
        TableColumn("Phase"),
        number("Communication"),
        number("Exposed communication"),
        number("Copies"),
        number("Exposed copies"),
    ]
    rows: list[Row] = [
        [
            phase.phase,
            us_cell(phase.communication_us or None),
            us_cell(phase.exposed_communication_us if phase.communication_us else None),
            us_cell(phase.copy_us or None),
            us_cell(phase.exposed_copy_us if phase.copy_us else None),
        ]
        for phase in result.phases
    ]
    return join((tag("h3", "By phase"), table(columns, rows, "Overlap by phase")))


def _ops(result: Overlap) -> Html:
    columns = [
        TableColumn("Collective or copy"),
        TableColumn("Source", is_wide=True),
        number("Bytes", wide=True),
        number("Per step"),
        number("Exposed"),
        number("Hidden", wide=True),
        TableColumn("", is_wide=True),
        TableColumn("Hidden behind", is_wide=True),
    ]
    rows: list[Row] = [
        [
            named_cell(op.description or op.category or op.instruction, op.instruction),
            tag("span", file_name(op.source), class_="c at"),
            bytes_cell(op.bytes),
            us_cell(op.per_step_us),
            us_cell(op.exposed_us),
            share_cell(op.hidden_share, 0),
            _split(op),
            _hiders(op),
        ]
        for op in result.ops
    ]
    made = table(
        columns, rows, "Exposed time of collectives and copies", more="slipstream overlap --json"
    )
    return join((tag("h3", "Most exposed first"), made))


def _split(op: Overlapped) -> Html:
    """Exposed and hidden time as one bar."""
    parts = [
        BarPart("exposed", op.exposed_us, op.kind, time_text(op.exposed_us)),
        BarPart("hidden", op.hidden_us, "muted", time_text(op.hidden_us)),
    ]
    return bar(parts, f"{share_text(op.hidden_share, 0)} hidden", size="slim")


def _hiders(op: Overlapped) -> Html:
    parts = [
        (", " if at else "", hider.description or hider.instruction, " ",
         tag("span", time_text(hider.per_step_us), class_="amount"))
        for at, hider in enumerate(op.hidden_by[:HIDERS])
    ]  # fmt: skip
    return tag("span", parts if parts else "–")


def _slack(result: Slack) -> Html:
    heading = tag("h3", "Slack")
    if not result.rows:
        return join((heading, notes_of(result.notes)))
    zero = sum(1 for row in result.rows if row.is_zero)
    text = (
        f"How much later each could end without delaying step {result.step} of "
        f"{result.device}: {zero} of {len(result.rows)} {'has' if zero == 1 else 'have'} no slack."
    )
    columns = [
        TableColumn("Collective or copy"),
        number("Slack"),
        number("Exposed"),
        TableColumn("Needed by, or next on its stream", is_wide=True),
        number("Could start earlier by", wide=True),
        TableColumn("Waits for", is_wide=True),
    ]
    rows = [_slack_row(row) for row in result.rows]
    made = table(columns, rows, "Slack of collectives and copies", 10, "slipstream slack --json")
    return join((heading, tag("p", text, class_="lede"), made, notes_of(result.notes)))


def _slack_row(row: SlackRow) -> Row:
    none = Cell(tag("b", "none"), row.slack_us)
    return [
        named_cell(row.description or row.instruction, row.instruction),
        none if row.is_zero else us_cell(row.slack_us),
        us_cell(row.exposed_us),
        named_cell(row.limit_description or row.limit, row.limit),
        us_cell(row.earlier_us),
        named_cell(row.after_description or row.after, row.after),
    ]
