"""`slipstream hosts` as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.analyses.hosts import MANY, Hosts, Slow
from slipstream.outputs.formatting import plural, share_text, time_text
from slipstream.outputs.terminal.layout import (
    MIN_WIDTH,
    WIDTH,
    TextColumn,
    heading,
    note_lines,
    styled_text,
    table_lines,
)

_CLOCKS = {
    "collectives": "clocks aligned by {count} collectives",
    "recorded": "clocks as recorded",
    "one": "one process, one clock",
    "unknown": "clocks can't be compared",
}


def hosts_json(result: Hosts) -> dict[str, Any]:
    """What `hosts --json` prints."""
    found = {
        key: value for key, value in vars(result).items() if key not in ("rows", "notes", "slow")
    }
    return {
        **found,
        "slow": [one.row.device for one in result.slow],
        "slow_hosts": [one.row.host for one in result.slow],
        "rows": [asdict(row) for row in result.rows],
        "notes": list(result.notes),
    }


SCREENFUL = 20


def render_hosts(result: Hosts, width: int = WIDTH, top: int | None = None) -> Text:
    """A row for each device; of many, those that the others wait for most."""
    width = max(width, MIN_WIDTH)
    parts = [plural(result.hosts, "process").replace("processs", "processes")]
    parts += [plural(result.devices, "device"), _CLOCKS[result.clock].format(count=result.matched)]
    if result.alignment_us is not None and result.alignment_95_us is not None:
        within, most = time_text(result.alignment_us), time_text(result.alignment_95_us)
        parts.append(f"then ends agree within {within}, 95% within {most}")
    shown = result.ranked[: top or (SCREENFUL if len(result.rows) > MANY else None)]
    columns = [TextColumn("host", min_width=8), TextColumn("device", min_width=5)]
    headings = ("step", "compute", "clock", "starts", "arrives last", "others wait")
    columns += [TextColumn(head, right=True) for head in headings]
    rows = [
        [
            row.host,
            row.device,
            time_text(row.step_us),
            time_text(row.compute_us),
            _signed(row.clock_offset_us),
            _signed(row.start_skew_us),
            "–" if row.last_share is None else share_text(row.last_share, 0),
            "–" if row.caused_us is None else time_text(row.caused_us),
        ]
        for row in shown
    ]
    lines = [*heading(parts, width), *table_lines(columns, rows, width)]
    said = [slow_text(one) for one in result.slow[: top or SCREENFUL]]
    if len(shown) < len(result.rows):
        ranked = (
            ": those that the others wait for most, then those that compute longest"
            if len(result.rows) > MANY
            else ""
        )
        count = len(result.rows)
        said.insert(0, f"{len(shown)} of {count} devices{ranked}; all of them: --top {count}")
    return styled_text([*lines, *note_lines([*said, *result.notes], width)])


def slow_text(one: Slow) -> str:
    """A sentence on a device that computes longer than the others."""
    row = one.row
    return (
        f"{row.device} of {row.host} computes for {time_text(row.compute_us)} per step, "
        f"{share_text(one.excess, 0)} longer than the others: it is slower, or has more to compute"
    )


def _signed(us: float | None) -> str:
    if us is None:
        return "–"
    return f"{'−' if us < 0 else '+'}{time_text(abs(us))}" if us else "0"
