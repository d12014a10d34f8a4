"""`slipstream collectives` as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.analyses.collectives import (
    NOT_TREE,
    CollectiveGroup,
    CollectiveRow,
    Collectives,
    Straggler,
)
from slipstream.outputs.formatting import (
    column_unit,
    count_text,
    file_name,
    number_text,
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
    sizes = _groups(result.rows)
    if len(sizes) == 1 and (size := next(iter(sizes))) is not None:
        parts.append(f"groups of {size}")
    parts.append(plural(result.steps, "step") if result.steps else "the whole recording")
    lines = heading(parts, width)
    if not result.rows:
        return styled_text([*lines, ("no collectives in the steps", "")])
    lines += _table(result.rows if flat else result.groups, width, top)
    if result.stragglers:
        lines += [("", ""), *_stragglers(result, width)]
    return styled_text([*lines, *note_lines(result.notes, width)])


def _table(rows: Sequence[CollectiveRow], width: int, top: int | None) -> list[Line]:
    unit, scale, digits = column_unit([row.per_step_us for row in rows])
    has_waits = any(row.wait_us is not None for row in rows)
    has_algorithm = any(_algorithm(row) for row in rows)
    # What it does names its bytes, unless the program is unknown.
    has_bytes = not all(_bytes(row) in row.description for row in rows if row.bytes is not None)
    columns = [
        TextColumn("", right=True, key="count"),
        TextColumn("collective", min_width=18, key="what", weight=2, shorten=elide_op),
        TextColumn("instruction", min_width=14, max_width=40, is_optional=True),
        TextColumn("source", min_width=8, max_width=20, shorten=elide_source),
        TextColumn("bytes", right=True, is_hidden=not has_bytes),
        TextColumn("group", right=True, is_hidden=len(_groups(rows)) == 1),
        TextColumn(unit, right=True, key="time"),
        TextColumn("exposed", right=True),
        TextColumn("waits", right=True, is_hidden=not has_waits),
        TextColumn("GB/s", right=True, key="bus"),
        TextColumn("link", right=True, key="of link"),
        TextColumn("algorithm", min_width=4, is_optional=True, is_hidden=not has_algorithm),
        *(TextColumn(name, min_width=8, is_hidden=True) for name in _HIDDEN),
    ]
    cells = [
        [
            f"{count_text(row.per_step_count)} ×",
            op_text(row.phase, row.scope, row.description or row.instruction),
            _name(row),
            file_name(row.source),
            _bytes(row) or "–",
            "–" if row.group_size is None else str(row.group_size),
            number_text(row.per_step_us / scale, digits),
            number_text(row.exposed_us / scale, digits),
            "–" if row.wait_us is None else number_text(row.wait_us / scale, digits),
            _rate(row.bus_bandwidth),
            "–" if row.link_share is None else share_text(row.link_share, 0),
            _algorithm(row) or "–",
            *(getattr(row, name) for name in _HIDDEN),
        ]
        for row in rows
    ]
    return table_lines(columns, cells, width, top)


_HIDDEN = ("kind", "phase", "scope", "program")
"""columns to ask for"""


def _groups(rows: Sequence[CollectiveRow]) -> set[int | None]:
    """The numbers of participants."""
    return {row.group_size for row in rows}


def _algorithm(row: CollectiveRow) -> str:
    """The algorithm, where it is known."""
    return "" if row.algorithm == NOT_TREE else row.algorithm


def _bytes(row: CollectiveRow) -> str:
    return "" if row.bytes is None else format_bytes(row.bytes)


def _rate(rate: float | None) -> str:
    """`1.62`, `148`: three digits, in GB/s."""
    if rate is None:
        return "–"
    rate /= 1e9
    if 0 < rate < 0.005:
        return "<0.01"
    return number_text(rate, 0 if rate >= 99.95 else 1 if rate >= 9.995 else 2)


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
