"""`slipstream gaps` as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.analyses.gaps import CAUSES, Gaps
from slipstream.outputs.formatting import (
    count_text,
    plural,
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
    heading,
    note_lines,
    styled_text,
    table_lines,
)


def gaps_json(result: Gaps, top: int | None = None) -> dict[str, Any]:
    """What `gaps --json` prints."""
    return {
        "steps": result.steps,
        "wall_us": result.wall_us,
        "idle_us": result.idle_us,
        "by_cause_us": dict(result.by_cause),
        "gaps_per_step": result.count,
        "per_step_us": {
            name.removesuffix("_us"): value for name, value in asdict(result.per_step).items()
        },
        "waiting_us": result.waiting_us,
        "exposed_communication_us": result.per_step.exposed_communication_us,
        "exposed_copy_us": result.per_step.exposed_copy_us,
        "longest": [asdict(gap) for gap in result.longest[:top]],
        "groups": [asdict(place) for place in result.groups[:top]],
        "notes": list(result.notes),
    }


def render_gaps(
    result: Gaps, width: int = WIDTH, top: int | None = None, flat: bool = False
) -> Text:
    """Idle time by cause, and the `top` places with most of it; if `flat`, the longest gaps."""
    width = max(width, MIN_WIDTH)
    times = result.per_step
    idle = share_text(ratio(times.idle_us, times.wall_us))
    parts = [
        step_text(times.wall_us, result.steps),
        f"idle {time_text(times.idle_us)} ({idle})",
        f"{plural(result.count, 'gap')}{' per step' if result.steps else ' per device'}",
        steps_text(result.steps),
    ]
    lines = heading(parts, width)
    columns = [
        TextColumn("idle cause"),
        TextColumn("mean step" if result.steps else "mean", right=True),
        TextColumn("share", right=True),
        TextColumn("meaning", min_width=20),
    ]
    rows = [
        [cause, time_text(us), share_text(ratio(us, result.wall_us)), CAUSES[cause]]
        for cause, us in sorted(result.by_cause.items(), key=lambda item: -item[1])
    ]
    lines += table_lines(columns, rows, width)
    if result.waiting_us:
        share = share_text(ratio(result.waiting_us, times.wall_us))
        waits = f"compute waits another {time_text(result.waiting_us)} ({share})"
        lines += [("", ""), (f"{waits} for transfers: see slipstream overlap", "")]
    if result.longest:
        shown = _longest(result, width, top) if flat else _places(result, width, top)
        lines += [("", ""), *shown]
    return styled_text([*lines, *note_lines(result.notes, width)])


def _places(result: Gaps, width: int, top: int | None) -> list[Line]:
    has_host = any(place.longest.doing for place in result.groups)
    columns = [
        TextColumn("per step" if result.steps else "total", right=True),
        TextColumn("times", right=True),
        TextColumn("longest", right=True),
        TextColumn("cause"),
        TextColumn("ran before", min_width=10),
        TextColumn("ran after", min_width=10),
        *([TextColumn("host activity", min_width=10)] if has_host else []),
    ]
    rows = [
        [
            time_text(place.per_step_us),
            count_text(place.per_step_count),
            time_text(place.longest.us),
            place.cause,
            place.before or "–",
            place.after or "–",
            *([place.longest.doing or "–"] if has_host else []),
        ]
        for place in result.groups
    ]
    return table_lines(columns, rows, width, top)


def _longest(result: Gaps, width: int, top: int | None) -> list[Line]:
    several = len({(gap.host, gap.device) for gap in result.longest}) > 1
    columns = [
        TextColumn("longest", right=True),
        TextColumn("step", right=True),
        *([TextColumn("device")] if several else []),
        TextColumn("cause"),
        TextColumn("ran before", min_width=10),
        TextColumn("ran after", min_width=10),
        TextColumn("host activity", min_width=10),
    ]
    rows = [
        [
            time_text(gap.us),
            str(gap.step),
            *([gap.device] if several else []),
            gap.cause,
            gap.before or "–",
            gap.after or "–",
            gap.doing or "–",
        ]
        for gap in result.longest
    ]
    return table_lines(columns, rows, width, top)
