"""What changed since another profile: both steps as bars, then op by op."""

from __future__ import annotations

import math

from slipstream.analyses.diff.diff import DIFFERENT_PROGRAMS, Change, Diff, StepPart, Verdict
from slipstream.analyses.diff.schedule_moves import Move
from slipstream.analyses.summary import StepTimes, Summary
from slipstream.outputs.formatting import (
    file_name,
    op_text,
    plural,
    share_text,
    time_text,
    verdict_title,
)
from slipstream.outputs.html.charts import bar, legend
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.sections.overview import step_parts
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    TimeColumn,
    named_cell,
    number,
    table,
)

PARTS = {
    "wall": "step",
    "exposed_communication": "exposed communication",
    "exposed_copy": "exposed copies",
}
NAMED = 3
"""ops that the summing-up names"""
MIN_CHANGE = 0.0005
"""share of the step below which a change is not shown"""
DOUBT = {
    True: "beyond noise",
    False: "within noise",
    None: "too few steps to tell",
}


def diff_section(diff: Diff, before: Summary, after: Summary, names: tuple[str, str]) -> Section:
    """Verdict, both bars, where the time went, what moved."""
    return diff_tables(diff, _bars(before.per_step, after.per_step, names))


def diff_tables(diff: Diff, bars: Html | None = None) -> Section:
    """The same from the comparison itself, which has no summaries to draw as bars."""
    if diff.verdict.verdict == DIFFERENT_PROGRAMS:
        return Section("diff", "Changes", join(bars), _lede(diff))
    body = join(
        (
            tag("p", sum_up(diff), class_="lede"),
            bars,
            _parts(diff.parts),
            _changes(diff),
            _moves(diff),
        )
    )
    return Section("diff", "Changes", body, _lede(diff))


def sum_up(diff: Diff) -> str:
    """The comparison in a sentence: the step, the parts and the ops that changed most."""
    before, after = diff.before.step_us, diff.after.step_us
    if not (math.isfinite(before) and math.isfinite(after)) or not before:
        return "The steps can't be compared."
    least = MIN_CHANGE * before
    now, then = time_text(after), time_text(before)
    text = f"The step takes {now} instead of {then}"
    if now == then:
        change = f" ({signed(after - before)})" if after != before else ""
        text = f"The step takes {now} before and after{change}"
    parts = [(PARTS.get(p.name, p.name), p.after_us - p.before_us) for p in diff.parts[1:]]
    moved = sorted((part for part in parts if abs(part[1]) > least), key=lambda part: -abs(part[1]))
    if moved:
        text += ": " + ", ".join(f"{name} {signed(us)}" for name, us in moved)
    sure = [one for one in diff.changes if one.is_beyond_noise is not False]
    large = [one for one in sure if abs(one.excess_us) > least]
    large.sort(key=lambda one: -abs(one.excess_us))
    ops = [f"{o.description or o.category} {signed(o.excess_us)}" for o in large[:NAMED]]
    if ops:
        changed = plural(len(large), "op")
        which = f"The largest of {changed} that" if len(large) > len(ops) else f"{changed}"
        text += f". {which} changed: {', '.join(ops)}"
    for kind, word in (("new", "added"), ("gone", "gone")):
        own = [one.excess_us for one in diff.changes if one.kind == kind]
        if own:
            text += f"; {plural(len(own), 'op')} {word} ({signed(sum(own))})"
    return text + "."


def signed(us: float) -> str:
    """`+1.2 ms`, `−340 µs`."""
    if not math.isfinite(us):
        return "–"
    sign = "+" if us > 0 else "−" if us < 0 else ""
    return f"{sign}{time_text(abs(us))}"


def percent(share: float) -> str:
    return f"{share:+.1%}".replace("-", "−") if math.isfinite(share) else "–"


def verdict_text(verdict: Verdict) -> str:
    """`slower: +2.0% (95%: +1.1% … +3.0%)`."""
    change = f": {percent(verdict.change)}" if math.isfinite(verdict.change) else ""
    text = f"{verdict_title(verdict.verdict)}{change}"
    if verdict.low is not None and verdict.high is not None and verdict.confidence < 1:
        bounds = f"{percent(verdict.low)} … {percent(verdict.high)}"
        text += f" ({verdict.confidence:.0%}: {bounds})"
    return text


def _lede(diff: Diff) -> Html:
    kind = {"slower": "up", "faster": "down"}.get(diff.verdict.verdict)
    shares = (share_text(side.matched_share) for side in (diff.before, diff.after))
    matched = "Matched ops cover {} of device time before and {} after.".format(*shares)
    drift = ""
    if diff.drift is not None and abs(diff.drift) >= 0.001:
        word = "slower" if diff.drift > 0 else "faster"
        drift = f" Identical kernels run {abs(diff.drift):.1%} {word} (clock or machine)."
    text = verdict_text(diff.verdict)
    text = text[:1].upper() + text[1:]
    return join((tag("b", text, class_=kind), f"; {diff.verdict.why}. {matched}{drift}"))


def _bars(before: StepTimes, after: StepTimes, names: tuple[str, str]) -> Html:
    most = max(before.wall_us, after.wall_us)
    rows = []
    for name, times in zip(names, (before, after), strict=True):
        parts = step_parts(times)
        said = ", ".join(f"{part.name} {part.text}" for part in parts)
        rows += [
            tag("span", name, class_="name"),
            bar(parts, f"{name}: {time_text(times.wall_us)}, {said}", most),
            tag("span", time_text(times.wall_us), class_="amount"),
        ]
    shown = {part.name: part for times in (before, after) for part in step_parts(times)}
    keys = [tag("div", rows, class_="bars sides"), legend(list(shown.values()))]
    return tag("div", keys[0], tag("div", keys[1], class_="keysonly"))


def _parts(parts: tuple[StepPart, ...]) -> Html:
    shown = [part for part in parts if part.before_us or part.after_us]
    times = TimeColumn(
        [us for part in shown for us in (part.before_us, part.after_us)],
        [part.after_us - part.before_us for part in shown],
    )
    columns = [
        TableColumn("Part of the step"),
        number(f"Before, {times.unit}"),
        number(f"After, {times.unit}"),
        number(f"Change, {times.unit}"),
    ]
    rows: list[Row] = [
        [
            PARTS.get(part.name, part.name),
            times.cell(part.before_us),
            times.cell(part.after_us),
            _change_cell(part.after_us - part.before_us, times),
        ]
        for part in shown
    ]
    return table(columns, rows, "Parts of the step")


def _change_cell(us: float, times: TimeColumn) -> Cell:
    kind = "up" if us > 0 else "down" if us < 0 else None
    sign = "+" if us > 0 else "−" if us < 0 else ""
    return Cell(tag("span", f"{sign}{times.text(abs(us))}", class_=kind), us)


def _changes(diff: Diff) -> Html:
    heading = tag("h3", "Ops that changed most")
    least = MIN_CHANGE * diff.before.step_us
    shown = [change for change in diff.groups if abs(change.excess_us) > least]
    shown.sort(key=lambda change: -abs(change.excess_us))
    if not shown:
        text = "No op changed enough to matter."
        return join((heading, tag("p", text, class_="empty")))
    times = TimeColumn(
        [us for change in shown for us in (change.before_us, change.after_us)],
        [change.excess_us for change in shown],
    )
    columns = [
        TableColumn("Op"),
        TableColumn("Source", is_wide=True),
        TableColumn("How", is_wide=True),
        number(f"Before, {times.unit}"),
        number(f"After, {times.unit}"),
        number(f"Net change, {times.unit}"),
        TableColumn("", is_wide=True),
    ]
    rows = [_change(change, times) for change in shown]
    left = len(diff.groups) - len(shown)
    note = tag("p", f"{plural(left, 'more op')} with smaller changes or none.", class_="note")
    made = table(columns, rows, "Ops that changed", more="slipstream diff --json")
    return join((heading, made, note if left else None))


def _change(change: Change, times: TimeColumn) -> Row:
    return [
        named_cell(
            op_text(change.phase, "", change.description or change.category), _names(change)
        ),
        tag("span", file_name(change.source), class_="c at"),
        change.kind,
        times.cell(change.before_us),
        times.cell(change.after_us),
        _change_cell(change.excess_us, times),
        tag("small", DOUBT[change.is_beyond_noise]),
    ]


def _names(change: Change) -> str:
    old, new = (_list(names) for names in (change.before, change.after))
    return old if old == new or not new else new if not old else f"{old} → {new}"


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names[:2]) + (f", +{len(names) - 2}" if len(names) > 2 else "")


def _moves(diff: Diff) -> Html | None:
    least = MIN_CHANGE * diff.before.step_us
    moved = [m for m in diff.move_groups if abs(m.change_us) > least or m.gained or m.lost]
    if not moved and not diff.reordered:
        return None
    order = f"{plural(diff.reordered, 'op')} reordered." if diff.reordered else (
        "The order of ops is unchanged."
    )  # fmt: skip
    text = tag("p", order, class_="lede")
    heading = tag("h3", "What moved in the schedule")
    if not moved:
        return join((heading, text))
    times = TimeColumn([us for move in moved for us in _exposed(move)])
    columns = [
        TableColumn("Collective or copy"),
        number(f"Exposed before, {times.unit}"),
        number(f"Exposed after, {times.unit}"),
        TableColumn("Now beside", is_wide=True, is_code=True),
        TableColumn("No longer beside", is_wide=True, is_code=True),
    ]
    rows = [_move(move, times) for move in moved]
    made = table(columns, rows, "What moved in the schedule", 8, "slipstream diff --json")
    return join((heading, text, made))


def _exposed(move: Move) -> tuple[float | None, float | None]:
    """Exposed time before and after, None on the side that doesn't have it."""
    before, after = (side.exposed_us if side else None for side in (move.before, move.after))
    return before, after


def _move(move: Move, times: TimeColumn) -> Row:
    before, after = _exposed(move)
    return [
        named_cell(move.description or move.kind, file_name(move.source)),
        times.cell(before),
        times.cell(after),
        _list(move.gained) or "–",
        _list(move.lost) or "–",
    ]
