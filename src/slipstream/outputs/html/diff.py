"""Two profiles compared, as a page: what changed, flags, and both steps one above the other."""

from __future__ import annotations

import os
from typing import Any

from slipstream.analyses.diff.diff import Change, Diff, Side
from slipstream.analyses.summary import summary
from slipstream.outputs.formatting import plural, time_text, verdict_title
from slipstream.outputs.html.markup import Html, tag
from slipstream.outputs.html.page import TIMELINE_SCRIPTS, TIMELINE_STYLE, Page, Section, page
from slipstream.outputs.html.report import KEYS
from slipstream.outputs.html.sections.diff import diff_section
from slipstream.outputs.html.step_data import OpKey, StepView, window
from slipstream.outputs.html.tables import Row, TableColumn, table
from slipstream.profile.profile import Profile
from slipstream.writing import atomic_write

Sides = tuple[Profile, Profile]
Names = tuple[str, str]


def diff_page(found: Diff, sides: Sides, names: Names) -> str:
    """The whole page."""
    data = _data(found, sides, names)
    program = (found.after.program or found.before.program).partition("(")[0] or "Two profiles"
    verdict = verdict_title(found.verdict.verdict)
    return page(
        Page(
            title=f"{program} · {verdict} · slipstream",
            heading=f"{program}: {verdict}",
            facts=[f"{names[0]} → {names[1]}", _facts(found.before), _facts(found.after)],
            sections=[
                diff_section(found, summary(sides[0]), summary(sides[1]), names),
                _flags(found, sides, names),
                _timeline(data, names),
            ],
            data=data,
            styles=(TIMELINE_STYLE, "report.css"),
            scripts=(*TIMELINE_SCRIPTS, "numbers.js", "share.js", "step_lanes.js", "diff.js"),
            keys=KEYS[1:],
        )
    )  # fmt: skip


def write_diff(found: Diff, sides: Sides, names: Names, path: str | os.PathLike[str]) -> None:
    """Write the page."""
    text = diff_page(found, sides, names).encode("utf-8", "replace")
    with atomic_write(path) as temporary:
        temporary.write_bytes(text)


def _facts(side: Side) -> str:
    return f"{plural(side.steps, 'step')}, {time_text(side.step_us)}" if side.steps else ""


def _flags(found: Diff, sides: Sides, names: Names) -> Section:
    """Flags that differ between the programs with the most device time."""
    programs = [
        side.programs.get(of.program)
        for side, of in zip(sides, (found.before, found.after), strict=True)
    ]
    before, after = (dict(one.flags) if one is not None else {} for one in programs)
    changed = sorted(name for name in before | after if before.get(name) != after.get(name))
    if not before and not after:
        text = "Neither recording contains the XLA flags of its program."
        return Section("flags", "Flags", tag("p", text, class_="empty"))
    if not changed:
        text = f"No flag differs, of {len(before)}."
        return Section("flags", "Flags", tag("p", text, class_="empty"))
    columns = [TableColumn("Flag", is_code=True), *(TableColumn(n, is_code=True) for n in names)]
    rows: list[Row] = [
        [name, *(side.get(name, "–") or "(empty)" for side in (before, after))] for name in changed
    ]
    return Section("flags", "Flags", table(columns, rows, "Flags that differ"), "", str(len(rows)))


def _timeline(data: dict[str, Any], names: Names) -> Section:
    if not all(data["steps"]):
        text = "One of the recordings has no device events, so there is no timeline."
        return Section("timeline", "Timeline", tag("p", text, class_="empty"))
    lede = (
        f"A step of median length of {names[0]} above one of {names[1]}. An arrow leads from the "
        "selected slice to what it was matched with."
    )
    area: Html = tag("div", id="timeline-view", class_="view")
    return Section("timeline", "Both steps", area, lede)


def _data(found: Diff, sides: Sides, names: Names) -> dict[str, Any]:
    """The data of `diff.js`: both steps, their ops, and what these were matched with."""
    ops: list[dict[str, Any]] = []
    steps: list[dict[str, Any] | None] = []
    for number, profile in enumerate(sides):
        shown = window(profile)
        view = StepView(profile, shown) if shown is not None else None
        if view is None or not view.lanes:
            steps.append(None)
            continue
        changes = _changes(found, number)
        keys = dict.fromkeys(key for _, _, key in view.labels if key is not None)
        places = {key: len(ops) + at for at, key in enumerate(keys)}
        ops += [_op(key, changes.get(key[1]), number) for key in keys]
        steps.append(view.data(places, {}))
    return {"names": list(names), "ops": ops, "steps": steps}


def _changes(found: Diff, number: int) -> dict[str, tuple[int, Change]]:
    """By instruction of one side, the change it belongs to and its number."""
    return {
        name: (at, change)
        for at, change in enumerate(found.changes)
        for name in (change.before, change.after)[number]
    }


def _op(key: OpKey, known: tuple[int, Change] | None, number: int) -> dict[str, Any]:
    if known is None:
        return {"instruction": key[1]}
    at, change = known
    return {
        "instruction": key[1],
        "text": change.description,
        "source": change.source,
        "phase": change.phase,
        "scope": change.scope,
        "change": {
            "number": at,
            "kind": change.kind,
            "other": ", ".join((change.after, change.before)[number][:3]),
            "before": change.before_us,
            "after": change.after_us,
        },
    }
