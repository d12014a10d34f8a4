"""`slipstream diff` as text and JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.analyses.diff.diff import (
    DIFFERENT_PROGRAMS,
    Change,
    Diff,
    Side,
    StepPart,
    Verdict,
)
from slipstream.analyses.diff.schedule_moves import Move, Placement
from slipstream.outputs.formatting import (
    column_unit,
    count_text,
    file_name,
    number_text,
    op_text,
    plural,
    share_text,
)
from slipstream.outputs.formatting import time_text as time
from slipstream.outputs.terminal.layout import (
    WIDTH,
    Line,
    TextColumn,
    elide_op,
    elide_source,
    paragraph,
    styled_text,
    table,
)
from slipstream.outputs.terminal.table_options import arranged

TOP = 10
MAX_MOVES = 5
"""collectives and copies shown"""
MIN_CHANGE = 0.0005
"""share of the step below which a change is not shown"""
_STYLES = {"slower": "bold red", "faster": "bold green"}
_PARTS = {
    "wall": "step",
    "exposed_communication": "exposed communication",
    "exposed_copy": "exposed copies",
}


def diff_json(diff: Diff, top: int | None = None, gate: float | None = None) -> dict[str, Any]:
    """What `diff --json` prints: all ops, or the `top` that changed most."""
    data = asdict(diff)
    for name in ("changes", "groups"):
        data[name] = data[name][:top]
    for name, found in (("moves", diff.moves), ("move_groups", diff.move_groups)):
        for row, move in zip(data[name], found, strict=True):
            row["change_us"] = move.change_us
    if gate is not None:
        low = diff.verdict.low
        data["gate"] = {"limit": gate, "passed": None if low is None else low <= gate}
    return data


def render_diff(diff: Diff, width: int = WIDTH, top: int | None = TOP, flat: bool = False) -> Text:
    """The verdict, where the time went, and what moved in the schedule.

    Equal ops of unrolled layers are one line, unless `flat`.
    """
    lines = [*_sides(diff), ("", ""), *_verdict(diff.verdict, width)]
    if diff.verdict.verdict == DIFFERENT_PROGRAMS:
        return styled_text(lines)
    lines += [("", "")]
    lines += _parts(diff.parts, width)
    lines += [("", ""), *_matched(diff, width)]
    lines += _changes(diff, width, top, flat)
    lines += _moves(diff, width, flat)
    return styled_text(lines)


def _sides(diff: Diff) -> list[Line]:
    return [(f"{name}  {_side(side)}", "bold") for name, side in
            (("before", diff.before), ("after ", diff.after))]  # fmt: skip


def _side(side: Side) -> str:
    name = side.program.partition("(")[0]
    steps = plural(side.steps, "step") if side.steps else "no steps"
    if side.is_simulated:
        steps = "simulated"
    parts = (f"{name} {(side.fingerprint or '')[:8]}".strip(), steps, time(side.step_us))
    return " · ".join(part for part in (file_name(side.source), *parts) if part)


def _verdict(verdict: Verdict, width: int) -> list[Line]:
    lines = paragraph(verdict_text(verdict), width)
    return [(line, _STYLES.get(verdict.verdict, "bold")) for line in lines]


def verdict_text(verdict: Verdict) -> str:
    """`slower: +3.1% (95%: +2.8% … +3.3%); the whole interval lies on one side of zero`."""
    change = f": {_percent(verdict.change)}" if math.isfinite(verdict.change) else ""
    text = f"{verdict.verdict}{change}"
    if verdict.low is not None and verdict.high is not None and verdict.confidence < 1:
        bounds = f"{_percent(verdict.low)} … {_percent(verdict.high)}"
        text += f" ({verdict.confidence:.0%}: {bounds})"
    return f"{text}; {verdict.why}"


def _parts(parts: Sequence[StepPart], width: int) -> list[Line]:
    unit, scale, digits = column_unit([t for p in parts for t in (p.before_us, p.after_us)])
    columns = [TextColumn("", min_width=12), *(TextColumn(h, right=True) for h in
               ("before", "after", f"change, {unit}"))]  # fmt: skip
    rows = [
        (
            ("" if part.name == "wall" else "  ") + part_name(part.name),
            number_text(part.before_us / scale, digits),
            number_text(part.after_us / scale, digits),
            signed((part.after_us - part.before_us) / scale, digits),
        )
        for part in parts
        if part.before_us or part.after_us
    ]
    heading, *lines = table(columns, rows, width, is_fixed=True)
    return [(heading, "dim"), *((line, "") for line in lines)]


def part_name(name: str) -> str:
    """How a part of the step reads in a table."""
    return _PARTS.get(name, name)


def _matched(diff: Diff, width: int) -> list[Line]:
    shares = share_text(diff.before.matched_share), share_text(diff.after.matched_share)
    text = f"matched ops cover {shares[0]} of device time before and {shares[1]} after"
    if diff.drift is not None and abs(diff.drift) >= 0.001:
        word = "slower" if diff.drift > 0 else "faster"
        text += (
            f"; identical kernels run {abs(diff.drift):.1%} {word} (clock or machine), which "
            "`net` excludes"
        )
    return [(line, "") for line in paragraph(text, width)]


def _changes(diff: Diff, width: int, top: int | None, flat: bool) -> list[Line]:
    found = changed_ops(diff, flat)
    if not found:
        return [("", ""), ("no op changed enough to matter", "")]
    unit, scale, digits = column_unit([t for c in found for t in (c.before_us, c.after_us)])
    columns = [
        TextColumn("", right=True, key="count"),
        TextColumn("most changed", min_width=12, key="what", shorten=elide_op),
        TextColumn("instruction", min_width=14, max_width=40, is_optional=True),
        # A column that always says the same is dropped in favour of longer names.
        TextColumn("how", is_hidden=all(change.kind == "same" for change in found[:top])),
        TextColumn("source", min_width=8, max_width=16, shorten=elide_source),
        TextColumn("before", right=True),
        TextColumn("after", right=True),
        TextColumn(f"net, {unit}", right=True, key="net"),
    ]
    rows = [_change(change, scale, digits) for change in found]
    asked = arranged(columns, rows)
    shown = [found[row] for row in asked.order[:top]]
    heading, *body = table(asked.columns, asked.rows[:top], width, is_fixed=True)
    lines: list[Line] = [("", ""), (heading, "dim"), *((line, "") for line in body)]
    lines += [(asked.note, "")] * bool(asked.note)
    if left := len(_ops(diff, flat)) - len(shown):
        lines.append((f"… and {left} more with smaller changes, within noise or none", "dim"))
    unsure = any(c.is_beyond_noise is False for c in shown)
    notes = ["~ within noise"] if unsure else []
    if any(c.is_beyond_noise is None for c in shown):
        notes.append("? too few steps to tell from noise")
    return lines + [(" · ".join(notes), "dim")] * bool(notes)


def _ops(diff: Diff, flat: bool) -> tuple[Change, ...]:
    return diff.changes if flat else diff.groups


def changed_ops(diff: Diff, flat: bool) -> list[Change]:
    """The ops, or groups of equal ones, that changed by what is worth a line."""
    least = MIN_CHANGE * diff.before.step_us
    return [change for change in _ops(diff, flat) if abs(change.excess_us) > least]


def _change(change: Change, scale: float, digits: int) -> tuple[str, ...]:
    mark = {True: "", False: " ~", None: " ?"}[change.is_beyond_noise]
    return (
        f"{count_text(change.per_step_count)} ×" if change.per_step_count else "",
        op_name(change),
        _names(change),
        change.kind,
        file_name(change.source),
        number_text(change.before_us / scale, digits),
        number_text(change.after_us / scale, digits),
        signed(change.excess_us / scale, digits) + mark,
    )


def op_name(change: Change) -> str:
    """What it computes; its category where that is unknown."""
    return op_text(change.phase, change.scope, change.description) or change.category


def _names(change: Change) -> str:
    """`fusion.3 → fusion.7, fusion.8`."""
    old, new = (_list(names) for names in (change.before, change.after))
    return old if old == new or not new else new if not old else f"{old} → {new}"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (f", +{len(names) - 2}" if len(names) > 2 else "")


def _moves(diff: Diff, width: int, flat: bool) -> list[Line]:
    least = MIN_CHANGE * diff.before.step_us
    found = diff.moves if flat else diff.move_groups
    moved = [m for m in found if abs(m.change_us) > least or m.gained or m.lost]
    if not moved and not diff.reordered:
        return []
    order = f"{plural(diff.reordered, 'op')} reordered" if diff.reordered else "same order"
    lines: list[Line] = [("", ""), (f"schedule: {order}", "")]
    for move in moved[:MAX_MOVES]:
        lines += [(line, "") for line in paragraph(_move(move), width, "  ", "    ")]
    if left := len(moved) - MAX_MOVES:
        lines += [(f"  … and {left} more: --json", "dim")] * (left > 0)
    return lines


def _move(move: Move) -> str:
    what = " · ".join(part for part in (move.description, file_name(move.source)) if part)
    if move.per_step_count:
        what = f"{count_text(move.per_step_count)} × {what}"
    parts = [_exposure(move.before, move.after)]
    if move.before is not None and move.after is not None:
        if move.before.is_inline and not move.after.is_inline:
            parts.append("now off the compute stream")
        if move.after.is_inline and not move.before.is_inline:
            parts.append("now on the compute stream")
    if move.lost:
        parts.append(f"no longer beside {_list(move.lost)}")
    if move.gained:
        parts.append(f"now beside {_list(move.gained)}")
    return f"{what}: {'; '.join(parts)}"


def _exposure(before: Placement | None, after: Placement | None) -> str:
    if before is None or after is None:
        side = after or before
        word = "new" if before is None else "gone"
        return f"{word}, exposed {time(side.exposed_us)} of {time(side.us)}" if side else word
    return f"exposed {time(before.exposed_us)} → {time(after.exposed_us)}"


def _percent(share: float) -> str:
    return f"{share:+.1%}".replace("-", "−")


def signed(value: float, digits: int) -> str:
    return f"{value:+.{digits}f}".replace("-", "−")


def gate_line(passed: bool | None, gate: float, verdict: Verdict) -> str:
    """The result of the gate, in one line."""
    if passed is None:
        return f"gate {gate:.1%}: undecided: {verdict.why}"
    low = verdict.low if verdict.low is not None else verdict.change
    if passed:
        return f"gate {gate:.1%}: passed: no evidence that the step is slower by more than that"
    return f"gate {gate:.1%}: failed: slower by at least {_percent(low)}"
