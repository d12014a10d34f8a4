"""`slipstream collectives` as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.analyses.collectives import (
    CollectiveGroup,
    CollectiveRow,
    Collectives,
    Straggler,
)
from slipstream.outputs.formatting import (
    count_text,
    file_name,
    op_text,
    plural,
    share_text,
    time_text,
)
from slipstream.outputs.terminal.layout import (
    MIN_WIDTH,
    WIDTH,
    Line,
    TextColumn,
    elide_op,
    elide_source,
    heading,
    note_lines,
    styled_text,
    table_lines,
)
from slipstream.units import format_bytes

_LINKS = {"nvlink": "NVLink", "nvswitch": "NVLink with NVSwitch", "pcie": "PCIe"}


def collectives_json(result: Collectives, top: int | None = None) -> dict[str, Any]:
    """What `collectives --json` prints."""
    late = result.straggler
    return {
        "steps": result.steps,
        "model": result.model,
        "link": result.link,
        "link_bandwidth": result.link_bandwidth,
        "alignment_us": result.alignment_us,
        "straggler": late.device if late else None,
        "straggler_host": late.host if late else None,
        "stragglers": [{**asdict(one), "last_share": one.last_share} for one in result.stragglers],
        "collectives": [asdict(row) for row in result.rows[:top]],
        "groups": [asdict(row) for row in result.groups[:top]],
        "notes": list(result.notes),
    }


def rate_text(rate: float | None) -> str:
    """`139 GB/s`; `–` if unknown."""
    return f"{format_bytes(rate)}/s" if rate is not None else "–"


def render_collectives(
    result: Collectives, width: int = WIDTH, top: int | None = None, flat: bool = False
) -> Text:
    """All collectives, or the `top` longest; equal ones of several layers as one, unless `flat`."""
    width = max(width, MIN_WIDTH)
    parts = [plural(len(result.rows), "collective"), result.model or "unknown device"]
    if result.link_bandwidth:
        parts.append(f"{_LINKS.get(result.link, result.link)} {rate_text(result.link_bandwidth)}")
    parts.append(plural(result.steps, "step") if result.steps else "the whole recording")
    lines = heading(parts, width)
    if not result.rows:
        return styled_text([*lines, ("no collectives in the steps", "")])
    lines += _table(result.rows if flat else result.groups, width, top)
    if result.stragglers:
        lines += [("", ""), *_stragglers(result, width)]
    return styled_text([*lines, *note_lines(result.notes, width)])


def _table(rows: Sequence[CollectiveRow], width: int, top: int | None) -> list[Line]:
    has_waits = any(row.wait_us is not None for row in rows)
    has_algorithm = any(row.algorithm for row in rows)
    headings = ["bytes", "group", "per step", "exposed", *(["waits"] * has_waits), "bus", "of link"]
    columns = [TextColumn("collective", min_width=14)]
    columns.append(TextColumn("count", right=True, is_optional=True))
    columns += [TextColumn(head, right=True) for head in headings]
    columns += [TextColumn("algo", min_width=4)] * has_algorithm
    # What it moves tells more than its name, where there is room for both.
    columns.insert(1, TextColumn("what", min_width=12, is_optional=True, shorten=elide_op))
    columns.append(
        TextColumn("source", min_width=8, max_width=20, is_optional=True, shorten=elide_source)
    )
    columns += [TextColumn(name, min_width=8, is_hidden=True) for name in _HIDDEN]
    texts = []
    for row in rows:
        waits = "–" if row.wait_us is None else time_text(row.wait_us)
        cells = [
            _name(row),
            op_text(row.phase, row.scope, row.description),
            count_text(row.per_step_count),
            "–" if row.bytes is None else format_bytes(row.bytes),
            "–" if row.group_size is None else str(row.group_size),
            time_text(row.per_step_us),
            time_text(row.exposed_us),
            *([waits] * has_waits),
            rate_text(row.bus_bandwidth),
            "–" if row.link_share is None else share_text(row.link_share, 0),
            *([row.algorithm or "–"] * has_algorithm),
            file_name(row.source),
            *(getattr(row, name) for name in _HIDDEN),
        ]
        texts.append(cells)
    return table_lines(columns, texts, width, top)


_HIDDEN = ("kind", "phase", "scope", "program")
"""columns to ask for"""


def _name(row: CollectiveRow) -> str:
    """`all-gather.3, +11`: an instruction, and how many are equal."""
    others = len(row.instructions) - 1 if isinstance(row, CollectiveGroup) else 0
    return f"{row.instruction}, +{others}" if others else row.instruction


def _stragglers(result: Collectives, width: int) -> list[Line]:
    columns = [TextColumn("device"), TextColumn("host", min_width=10)]
    headings = ("arrives last", "others wait", "waits itself")
    columns += [TextColumn(head, right=True) for head in headings]
    rows = [
        [
            one.device,
            one.host,
            share_text(one.last_share, 0),
            time_text(one.caused_us),
            time_text(one.waited_us),
        ]
        for one in result.stragglers
    ]
    lines = table_lines(columns, rows, width)
    return [*lines, (_verdict(result, result.straggler), "")]


def _verdict(result: Collectives, late: Straggler | None) -> str:
    clocks = f"clocks aligned to {time_text(result.alignment_us or 0.0)}"
    if late is None:
        return f"no device is late more often than chance; {clocks}"
    return f"the others wait for {late.device} of {late.host}; {clocks}"
