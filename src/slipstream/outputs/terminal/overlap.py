"""`slipstream overlap` as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.analyses.overlap import Overlap, Overlapped
from slipstream.outputs.formatting import (
    column_unit,
    count_text,
    file_name,
    number_text,
    op_text,
    ratio,
    share_text,
    step_text,
    steps_text,
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
    styled_text,
    table_lines,
)


def overlap_json(result: Overlap, top: int | None = None) -> dict[str, Any]:
    """What `overlap --json` prints."""
    return {
        "steps": result.steps,
        "per_step_us": {
            name.removesuffix("_us"): value for name, value in asdict(result.per_step).items()
        },
        "by_step": [asdict(step) for step in result.by_step],
        "phases": [asdict(phase) for phase in result.phases],
        "ops": [_json(op) for op in result.ops[:top]],
        "groups": [_json(op) for op in result.groups[:top]],
    }


def _json(op: Overlapped) -> dict[str, Any]:
    return {**asdict(op), "hidden_share": op.hidden_share}


def render_overlap(
    result: Overlap, width: int = WIDTH, top: int | None = None, flat: bool = False
) -> Text:
    """All collectives and copies, or the `top` most exposed; equal ones as one, unless `flat`."""
    width = max(width, MIN_WIDTH)
    lines = heading(_heading(result), width)
    if not result.ops:
        return styled_text([*lines, ("no collectives or copies in the steps", "")])
    shown: Sequence[Overlapped] = result.ops if flat else result.groups
    lines += [*_phases(result, width), ("", ""), *_ops(shown, width, top, flat)]
    hidden = [op for op in shown[:top] if op.hidden_by]
    if hidden:
        lines += [("", ""), *_hidden_by(hidden, width, flat)]
    return styled_text(lines)


def _heading(result: Overlap) -> list[str]:
    times = result.per_step
    parts = [step_text(times.wall_us, result.steps)]
    for name, whole, exposed in (
        ("communication", times.communication_us, times.exposed_communication_us),
        ("copies", times.copy_us, times.exposed_copy_us),
    ):
        if whole:
            share = share_text(ratio(exposed, times.wall_us))
            parts.append(f"{name} {time_text(whole)}, exposed {time_text(exposed)} ({share})")
    parts.append(steps_text(result.steps))
    return parts


def _phases(result: Overlap, width: int) -> list[Line]:
    columns = [TextColumn("phase")]
    columns += [
        TextColumn(head, right=True) for head in ("communication", "exposed", "copies", "exposed")
    ]
    rows = [
        [
            phase.phase,
            _some(phase.communication_us),
            _some(phase.exposed_communication_us),
            _some(phase.copy_us),
            _some(phase.exposed_copy_us),
        ]
        for phase in result.phases
    ]
    return table_lines(columns, rows, width)


def _some(us: float) -> str:
    return time_text(us) if us else "–"


def _ops(ops: Sequence[Overlapped], width: int, top: int | None, flat: bool) -> list[Line]:
    unit, scale, digits = column_unit([op.per_step_us for op in ops])
    columns = [
        TextColumn("", right=True, key="count"),
        TextColumn("most exposed", min_width=18, key="what", weight=2, shorten=elide_op),
        TextColumn("instruction", min_width=14, max_width=40, is_optional=not flat),
        TextColumn("source", min_width=10, max_width=20, shorten=elide_source),
        TextColumn(unit, right=True, key="time"),
        TextColumn("exposed", right=True),
        TextColumn("hidden", right=True),
    ]
    rows = [
        [
            f"{count_text(op.per_step_count)} ×",
            _what(op),
            op.instruction,
            file_name(op.source),
            number_text(op.per_step_us / scale, digits),
            number_text(op.exposed_us / scale, digits),
            share_text(op.hidden_share, 0),
        ]
        for op in ops
    ]
    return table_lines(columns, rows, width, top)


def _what(op: Overlapped) -> str:
    return op_text(op.phase, op.scope, op.description or op.instruction)


def _hidden_by(ops: Sequence[Overlapped], width: int, flat: bool) -> list[Line]:
    columns = [
        TextColumn("hidden", min_width=18, shorten=elide_op),
        TextColumn("instruction", min_width=14, max_width=40, is_optional=not flat),
        TextColumn("behind", min_width=18, shorten=elide_op),
        TextColumn("kernel", min_width=14, max_width=40, is_optional=True),
        TextColumn("time", right=True),
    ]
    rows = [
        [
            _what(op),
            op.instruction,
            hider.description or hider.instruction,
            hider.instruction,
            time_text(hider.per_step_us),
        ]
        for op in ops
        for hider in op.hidden_by[:1]
    ]
    return table_lines(columns, rows, width)
