"""`slipstream roofline` as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Any

from rich.text import Text

from slipstream.analyses.roofline import Roofline, RooflineGroup, RooflineRow
from slipstream.outputs.formatting import (
    file_name,
    op_text,
    share_text,
    step_text,
    time_text,
)
from slipstream.outputs.terminal.layout import (
    MIN_WIDTH,
    WIDTH,
    TextColumn,
    elide_op,
    elide_source,
    heading,
    note_lines,
    styled_text,
    table_lines,
)
from slipstream.units import format_bytes


def roofline_json(result: Roofline, top: int | None = None) -> dict[str, Any]:
    """What `roofline --json` prints."""
    kept = [one.name for one in fields(Roofline) if one.name not in ("rows", "notes")]
    found = {name: getattr(result, name) for name in kept}
    return {
        **found,
        "ops": [{**asdict(row), "lost_us": row.lost_us} for row in result.rows[:top]],
        "groups": [{**asdict(row), "lost_us": row.lost_us} for row in result.groups[:top]],
        "notes": list(result.notes),
    }


def flops_text(flops: float) -> str:
    """`209 TFLOP`."""
    for unit, scale in (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6)):
        if flops >= scale:
            return f"{flops / scale:.3g} {unit}"
    return f"{flops:.0f} FLOP"


def render_roofline(
    result: Roofline, width: int = WIDTH, top: int | None = None, flat: bool = False
) -> Text:
    """All ops, or the `top` that lose most time against the roof.

    Equal ops of unrolled layers are one line, unless `flat`.
    """
    width = max(width, MIN_WIDTH)
    each = "per step" if result.steps else "per device"
    parts = [step_text(result.step_us, result.steps), f"{flops_text(result.flops)} {each}"]
    if result.mfu is not None and result.hfu is not None:
        parts.append(f"MFU {share_text(result.mfu)}")
        if result.remat_flops:
            parts.append(
                f"HFU {share_text(result.hfu)}, recomputing {flops_text(result.remat_flops)}"
            )
    if result.peak_flops and result.memory_bandwidth:
        peak = f"{flops_text(result.peak_flops)}/s {result.dtype}"
        parts.append(f"{result.model}: {peak}, {format_bytes(result.memory_bandwidth)}/s")
    parts.append(f"work known for {share_text(result.counted_share)} of device time")
    lines = heading(parts, width)
    columns = [
        TextColumn("largest loss", min_width=14, key="what", weight=2, shorten=elide_op),
        TextColumn("instruction", min_width=14, max_width=40, is_optional=True),
        TextColumn("source", min_width=10, max_width=20, shorten=elide_source),
        TextColumn("per step", right=True, key="time"),
        TextColumn("lost", right=True),
        TextColumn("of roof", right=True),
        TextColumn("bound"),
        *(TextColumn(name, min_width=8, is_hidden=True) for name in _HIDDEN),
    ]
    shown: Sequence[RooflineRow] = result.rows if flat else result.groups
    rows = [_cells(row) for row in shown]
    return styled_text(
        [*lines, *table_lines(columns, rows, width, top), *note_lines(result.notes, width)]
    )


_HIDDEN = ("phase", "scope", "category", "dtype", "shapes", "program")
"""columns to ask for"""


def _cells(row: RooflineRow) -> list[str]:
    others = len(row.instructions) - 1 if isinstance(row, RooflineGroup) else 0
    return [
        op_text(row.phase, row.scope, row.description) or row.instruction,
        f"{row.instruction}, +{others}" if others else row.instruction,
        file_name(row.source),
        time_text(row.per_step_us),
        "–" if row.best_us is None else time_text(row.lost_us),
        "–" if row.roof_share is None else share_text(row.roof_share, 0),
        row.bound or "–",
        *(getattr(row, name) for name in _HIDDEN),
    ]
