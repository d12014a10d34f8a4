"""`slipstream ops` as text: device time by instruction, or by another grouping."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from slipstream.analyses.ops import Op, Ops
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
    TextColumn,
    heading,
    styled_text,
    table_lines,
)


def render_ops(ops: Ops, width: int = WIDTH, top: int | None = None) -> Text:
    """All ops, or the `top` longest."""
    width = max(width, MIN_WIDTH)
    shown = ops.ops[:top]
    times = [op.per_step_us for op in shown]
    unit, scale, digits = column_unit(times)
    columns, rows = _cells(ops.by, shown)
    for row, op, us in zip(rows, shown, times, strict=True):
        row += [count_text(op.per_step_count), number_text(us / scale, digits)]
        row.append(share_text(op.share))
    columns += [TextColumn(h, right=True) for h in ("count", unit, "share")]
    lines = [*heading(_header(ops), width), *table_lines(columns, rows, width)]
    if left := len(ops.ops) - len(shown):
        rest = sum(op.share for op in ops.ops[len(shown) :])
        lines.append(
            (f"… and {left} more, {share_text(rest)} together: --top {len(ops.ops)}", "dim")
        )
    return styled_text(lines)


def _header(ops: Ops) -> list[str]:
    parts = [f"device time by {ops.by}"]
    if ops.steps:
        parts.append(f"{time_text(sum(op.per_step_us for op in ops.ops))} per step")
        parts.append(f"{plural(ops.steps, 'step')} counted")
    else:
        total = sum(op.per_step_us for op in ops.ops)
        parts.append(f"{time_text(total)} per device in the whole recording")
    parts.append(f"{share_text(ops.attributed_share)} attributed to instructions")
    return parts


def _cells(by: str, ops: Sequence[Op]) -> tuple[list[TextColumn], list[list[str]]]:
    columns = [TextColumn(by, min_width=16)]
    rows = [[op.instruction or "(none)"] for op in ops]
    if by == "instruction":
        columns += [
            TextColumn("what", min_width=14),
            TextColumn("source", min_width=10, max_width=26),
        ]
        for row, op in zip(rows, ops, strict=True):
            row += [op_text(op.phase, op.scope, op.description), file_name(op.source)]
    if len({op.program for op in ops}) > 1:
        columns.append(TextColumn("program", min_width=8, max_width=24))
        for row, op in zip(rows, ops, strict=True):
            row.append(op.program)
    return columns, rows
