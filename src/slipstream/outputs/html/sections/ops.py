"""Ops: a treemap of device time, a sortable table, and details of each op."""

from __future__ import annotations

from typing import Any

from slipstream.analyses.ops import UNATTRIBUTED, Op
from slipstream.analyses.overlap import Overlapped
from slipstream.analyses.slack import STEP_END
from slipstream.outputs.formatting import plural, share_text, time_text
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.report_data import Results
from slipstream.outputs.html.step_data import OpKey
from slipstream.profile.semantics.layers import rolled_scope

GROUPINGS = (("scope", "Scope"), ("phase", "Phase"), ("source", "Source"), ("category", "Category"))
SHAPES = (("map", "Map"), ("icicle", "Icicle"))
MIN_SCOPED = 0.3
"""share of device time that must have a scope for the map to group by scope"""


def ops_section(found: Results) -> Section:
    """A treemap and a table; `ops.js` fills both."""
    if not found.ops.ops:
        empty = tag("p", "No device events were recorded, so there are no ops.", class_="empty")
        return Section("ops", "Ops", empty)
    chosen = grouping(found)
    buttons = [
        tag("button", text, type="button", data_by=by, aria_pressed=str(by == chosen).lower())
        for by, text in GROUPINGS
    ]
    shapes = [
        tag("button", text, type="button", data_shape=shape, aria_pressed=str(not at).lower())
        for at, (shape, text) in enumerate(SHAPES)
    ]
    tools = tag(
        "div",
        tag("div", buttons, class_="choice", role="group", aria_label="Group the map by"),
        tag("div", shapes, class_="choice", role="group", aria_label="Draw as"),
        tag("p", id="map-path", class_="path", aria_live="polite"),
        class_="maptools",
    )
    area = tag("div", id="map", class_="map", role="group", aria_label="Map of device time")
    return Section("ops", "Ops", join((tools, area, _table(found))), _lede(found), "")


def grouping(found: Results) -> str:
    """Scopes if the program has them, phases otherwise."""
    whole = sum(op.total_us for op in found.ops.ops)
    scoped = sum(op.total_us for op in found.ops.ops if op.scope)
    if whole and scoped / whole >= MIN_SCOPED:
        return "scope"
    phased = {op.phase for op in found.ops.ops if op.phase not in ("", "other")}
    return "phase" if phased else "category"


def _lede(found: Results) -> str:
    count = plural(len(found.ops.ops), "op")
    total = sum(op.per_step_us for op in found.ops.ops)
    span = "of one step" if found.ops.steps else "of the recording"
    share = share_text(found.ops.attributed_share)
    return (
        f"{count}, {time_text(total)} of device time {span}; {share} of it belongs to an "
        "instruction of the program. Areas are proportional to time; click a box to zoom in."
    )


def _table(found: Results) -> Html:
    search = tag(
        "input",
        type="search",
        id="ops-search",
        placeholder="Search ops, scopes, source lines",
        aria_label="Search the ops",
        autocomplete="off",
        spellcheck="false",
    )
    state = tag("span", id="ops-state", role="status")
    each = (
        tag(
            "button", "Each op", type="button", id="ops-each", class_="button", aria_pressed="false"
        )
        if any(len(one.instructions) > 1 for one in found.ops.groups)
        else None
    )
    has_roof = any(row.roof_share is not None for row in found.roofline.rows)
    titles = [
        ("op", "Op", None),
        ("scope", "Scope", "w") if any(op.scope for op in found.ops.ops) else None,
        ("phase", "Phase", "w") if any(op.phase for op in found.ops.ops) else None,
        ("category", "Category", "w"),
        ("source", "Source", "w"),
        ("count", "Runs per step" if found.ops.steps else "Runs", "n w"),
        ("roof", "Of roof", "n w") if has_roof else None,
        ("exposed", "Exposed", "n w") if found.overlap.ops else None,
        ("time", "Per step" if found.ops.steps else "Per device", "n"),
        ("share", "Share", "n"),
    ]
    heads = [
        tag("th", tag("button", title, type="button", data_sort=key), class_=classes, scope="col")
        for key, title, classes in filter(None, titles)
    ]
    made = tag(
        "table", tag("thead", tag("tr", heads)), tag("tbody"), id="ops-table", aria_label="Ops"
    )
    more = tag("button", "Show more", type="button", id="ops-more", class_="button showall")
    return join(
        (
            tag("div", search, each, state, class_="searchbar"),
            tag("div", made, class_="scroll", role="region", aria_label="Ops", tabindex=0),
            more,
        )
    )


def key_of(op: Op) -> OpKey:
    """The key of the op's events (see `step_data.OpKey`)."""
    if op.instruction == UNATTRIBUTED:
        return op.program, op.description.removeprefix("kernel ")
    return op.program, op.instruction


def ops_data(found: Results) -> list[dict[str, Any]]:
    """Every op with what is known about it; unknown values are left out."""
    hidden = {(op.program, op.instruction): op for op in found.overlap.ops}
    roof = {(row.program, row.instruction): row for row in found.roofline.rows}
    room = {(row.program, row.instruction): row for row in found.slack.rows}
    links = {(row.program, row.instruction): row for row in found.collectives.rows}
    groups = _groups(found)
    data = []
    for op in found.ops.ops:
        key = key_of(op)
        one: dict[str, Any] = {
            "program": op.program,
            "instruction": op.instruction,
            "count": op.per_step_count,
            "us": op.per_step_us,
            "share": op.share,
            "phase": op.phase,
            "category": op.category,
            "scope": op.scope,
            "source": op.source,
            "text": op.description,
            "group": groups.get((op.program, op.instruction)),
            "rolled": rolled_scope(op.scope) if rolled_scope(op.scope) != op.scope else None,
        }
        if key in hidden:
            one |= _exposed(hidden[key])
        if key in room:
            row = room[key]
            one |= {"slack": row.slack_us, "until": row.limit_description or row.limit}
            one |= {"after": row.after_description or row.after}
        if key in roof and (row_ := roof[key]).roof_share is not None:
            one |= {"roof": row_.roof_share, "bound": row_.bound, "flops": row_.flops}
            one |= {"traffic": row_.bytes}
        if key in links:
            one |= {"bus": links[key].bus_bandwidth, "link": links[key].link_share}
        data.append({name: value for name, value in one.items() if value not in ("", None)})
    return data


def _groups(found: Results) -> dict[OpKey, int]:
    """The number of each op's group, if it has equals."""
    return {
        (group.program, name): number
        for number, group in enumerate(found.ops.groups)
        if len(group.instructions) > 1
        for name in group.instructions
    }


def _exposed(op: Overlapped) -> dict[str, Any]:
    by = [[h.description or h.instruction, h.per_step_us] for h in op.hidden_by]
    return {"kind": op.kind, "exposed": op.exposed_us, "by": by or None, "bytes": op.bytes}


def waiting_for(found: Results) -> dict[OpKey, str]:
    """For each collective and copy, the op that needs its result."""
    return {
        (row.program, row.instruction): row.limit
        for row in found.slack.rows
        if row.limit != STEP_END
    }
