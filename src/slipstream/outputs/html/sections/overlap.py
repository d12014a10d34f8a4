"""Overlap: exposed and hidden collectives and copies, and their slack."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.analyses.layers import LayerExposure
from slipstream.analyses.overlap import Overlap, Overlapped
from slipstream.analyses.slack import Slack, SlackRow
from slipstream.outputs.formatting import file_name, name_and_size, share_text, time_text
from slipstream.outputs.html.charts import (
    BarPart,
    Lane,
    bar,
    chart,
    columns,
    lanes,
)
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
    with_equals,
)

HIDERS = 3
MOST_DRAWN = 16
"""collectives and copies in the picture of slack: the longest"""


def overlap_section(found: Results) -> Section:
    """Which compute hid which collective and copy."""
    return overlap_tables(found.overlap, found.slack, found.layers)


def overlap_tables(
    result: Overlap, slack: Slack | None = None, layers: Sequence[LayerExposure] = ()
) -> Section:
    """The same from the results themselves."""
    if not result.ops:
        text = "This program has no collectives and no copies."
        return Section("overlap", "Overlap", tag("p", text, class_="empty"))
    slacks = slack_table(slack) if slack else None
    body = join((_phases(result), layers_chart(layers), _ops(result), slacks))
    return Section("overlap", "Overlap", body, _lede(result))


def layers_chart(layers: Sequence[LayerExposure]) -> Html | None:
    """Exposed time of each layer, forward and backward, as columns; None with fewer than two."""
    own = [one for one in layers if one.number >= 0 and one.communication_us + one.copy_us > 0]
    numbers = sorted({one.number for one in own})
    if len(numbers) < 2:
        return None
    stacks: dict[int, list[BarPart]] = {number: [] for number in numbers}
    for one in own:
        for what, us, kind in (
            ("communication", one.communication_us, "communication"),
            ("copies", one.copy_us, "copy"),
        ):
            if us > 0:
                name = f"{one.layer}, {one.phase or 'other'}, {what}"
                stacks[one.number].append(BarPart(name, us, kind, time_text(us)))
    sums = {number: sum(part.value for part in parts) for number, parts in stacks.items()}
    most = max(sums.values())
    worst = max(sums, key=lambda number: sums[number])
    said = ", ".join(f"{number}: {time_text(us)}" for number, us in sums.items())
    drawn = columns(list(stacks.values()), f"Exposed time by layer: {said}", most)
    plot = tag("div", drawn, tag("span", time_text(most), class_="most"), class_="plot")
    ends = tag("div", tag("span", f"layer {numbers[0]}"), tag("span", f"layer {numbers[-1]}"),
               class_="ends")  # fmt: skip
    outside = sum(one.communication_us + one.copy_us for one in layers if one.number < 0)
    facts = [f"most in layer {worst}", f"{time_text(outside)} outside of layers"]
    return chart("Exposed time by layer", facts, join((plot, ends)), tall=True)


def slack_chart(rows: Sequence[SlackRow], wall_us: float) -> Html:
    """Each collective and copy where it ran in the step, and the slack behind it."""
    longest = sorted(rows, key=lambda row: -row.total_us)[:MOST_DRAWN]
    drawn = []
    for row in sorted(longest, key=lambda row: row.start_us):
        name, size = name_and_size(row.description or row.instruction)
        runs = f"runs {time_text(row.end_us - row.start_us)}"
        spans = [
            (row.start_us, row.end_us, row.kind, runs),
            (row.end_us, row.latest_end_us, "soft", f"slack {time_text(row.slack_us)}"),
        ]
        drawn.append(Lane(name, spans, size))
    return lanes(drawn, "Where it ran, and its slack", wall_us, ("0", time_text(wall_us)))


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
            named_cell(
                op.description or op.category or op.instruction,
                with_equals(op.instruction, len(op.instructions)),
            ),
            tag("span", file_name(op.source), class_="c at"),
            bytes_cell(op.bytes),
            us_cell(op.per_step_us),
            us_cell(op.exposed_us),
            share_cell(op.hidden_share, 0),
            _split(op),
            _hiders(op),
        ]
        for op in result.groups
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


def slack_table(result: Slack) -> Html:
    """How much later each collective and copy could end."""
    heading = tag("h3", "Slack")
    if not result.rows:
        return join((heading, notes_of(result.notes)))
    zero = sum(1 for row in result.rows if row.is_zero)
    count = f"{zero} of {len(result.rows)} {'has' if zero == 1 else 'have'} no slack"
    text = (
        f"How much later each could end without delaying step {result.step} of "
        f"{result.device}: {count if zero else 'all of them have slack'}."
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
    drawn = slack_chart(result.rows, result.wall_us)
    return join((heading, tag("p", text, class_="lede"), drawn, made, notes_of(result.notes)))


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
