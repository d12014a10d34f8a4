"""`slipstream slack` as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.analyses.slack import Slack, SlackRow
from slipstream.outputs.formatting import file_name, time_text
from slipstream.outputs.terminal.layout import (
    MIN_WIDTH,
    WIDTH,
    Line,
    TextColumn,
    elide_op,
    heading,
    note_lines,
    paragraph,
    styled_text,
    table_lines,
)

BLOCKED = 3
"""number of ops without slack to explain"""


def slack_json(result: Slack, top: int | None = None) -> dict[str, Any]:
    """What `slack --json` prints."""
    return {
        "device": result.device,
        "host": result.host,
        "step": result.step,
        "wall_us": result.wall_us,
        "program": result.program,
        "ops": [{**asdict(row), "is_zero": row.is_zero} for row in result.rows[:top]],
        "notes": list(result.notes),
    }


def render_slack(result: Slack, width: int = WIDTH, top: int | None = None) -> Text:
    """All collectives and copies, or the first `top`."""
    width = max(width, MIN_WIDTH)
    none, count = [row for row in result.rows if row.is_zero], len(result.rows)
    parts = [
        f"step {result.step} of {result.device}, {time_text(result.wall_us)}",
        "1 collective or copy" if count == 1 else f"{count} collectives and copies",
        f"{len(none)} without slack",
    ]
    lines = heading(parts, width)
    if result.rows:
        lines += _table(result, width, top)
        worst = [row for row in none if row.exposed_us > 0][:BLOCKED]
        lines += [line for row in worst for line in _blocked(row, width)]
    else:
        lines.append(("no collectives or copies in the step", ""))
    return styled_text([*lines, *note_lines(result.notes, width)])


def _table(result: Slack, width: int, top: int | None) -> list[Line]:
    columns = [
        TextColumn("op", min_width=14),
        TextColumn("times", right=True),
        TextColumn("slack", right=True),
        TextColumn("exposed", right=True),
        TextColumn("needed by", min_width=14),
        TextColumn("what", min_width=10, weight=2, shorten=elide_op),
    ]
    rows = [
        [
            row.instruction,
            str(row.count),
            "none" if row.is_zero else time_text(row.slack_us),
            time_text(row.exposed_us),
            row.limit,
            row.limit_description or file_name(row.limit_source),
        ]
        for row in result.rows
    ]
    return table_lines(columns, rows, width, top)


def _blocked(row: SlackRow, width: int) -> list[Line]:
    said = f"{row.instruction} is exposed for {time_text(row.exposed_us)}: {row.limit}"
    if row.limit_description:
        said += f" ({row.limit_description})"
    said += f" needs its result, and it can't start before {row.after}"
    if row.after_description:
        said += f" ({row.after_description})"
    said += " ends"
    if row.earlier_us > row.total_us / max(row.count, 1) * 0.05:
        said += f"; it starts {time_text(row.earlier_us)} after that"
    return [("", ""), *((line, "") for line in paragraph(said, width, "! ", "  "))]
