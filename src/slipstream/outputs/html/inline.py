"""Results in notebooks: the sections of their pages, in a frame of their own.

A frame keeps our styles out of the notebook and its styles out of our tables. It is as high as its
content, and light or dark as the notebook around it (`assets/inline.js`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from slipstream.analyses.collectives import Collectives
from slipstream.analyses.diff.diff import Diff
from slipstream.analyses.gaps import Gaps
from slipstream.analyses.hosts import Hosts
from slipstream.analyses.memory import Memory
from slipstream.analyses.network.network import Network
from slipstream.analyses.ops import Op, Ops
from slipstream.analyses.overlap import Overlap
from slipstream.analyses.roofline import Roofline
from slipstream.analyses.slack import Slack
from slipstream.analyses.summary import Summary, summary
from slipstream.costs.coverage import Coverage
from slipstream.costs.table import CostTable
from slipstream.outputs.formatting import file_name, plural, printable_lines, share_text, time_text
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.network import network_content
from slipstream.outputs.html.page import Page, Section, page
from slipstream.outputs.html.plan import plan_content
from slipstream.outputs.html.receipt import receipt_content
from slipstream.outputs.html.schedule import schedule_content
from slipstream.outputs.html.sections.collectives import collectives_section
from slipstream.outputs.html.sections.diff import diff_tables
from slipstream.outputs.html.sections.findings import findings_section
from slipstream.outputs.html.sections.gaps import gaps_section
from slipstream.outputs.html.sections.hosts import hosts_section
from slipstream.outputs.html.sections.memory import memory_section
from slipstream.outputs.html.sections.overlap import overlap_tables, slack_table
from slipstream.outputs.html.sections.overview import phases_bar, step_bar, warnings
from slipstream.outputs.html.sections.prediction import prediction_section
from slipstream.outputs.html.sections.roofline import roofline_section
from slipstream.outputs.html.study import study_content
from slipstream.outputs.html.tables import (
    Row,
    TableColumn,
    TimeColumn,
    count_cell,
    named_cell,
    number,
    share_cell,
    table,
)
from slipstream.outputs.terminal.costs import render_coverage, render_table
from slipstream.profile.profile import Profile
from slipstream.results.diagnosis import Diagnosis
from slipstream.results.planning import Plan
from slipstream.results.prediction import Prediction
from slipstream.results.scheduling import Scheduling
from slipstream.results.tuning import Tuning

FIRST_HEIGHT = 320
"""pixels, until the frame's script has measured its content"""
STYLE = "border:0;width:100%;max-width:1120px;display:block"
TEXT_WIDTH = 100


def inline_html(result: object) -> str | None:
    """A result as a self-contained element; None for a type that has no page."""
    made = next((make for kind, make in _PAGES.items() if isinstance(result, kind)), None)
    if made is None:
        return _receipt(result)
    found = made(result)
    return frame(found if isinstance(found, Page) else _page(found))


def frame(content: Page) -> str:
    """A page without its contents and footer, in an `iframe`."""
    inner = page(
        replace(
            content,
            styles=(*content.styles, "inline.css"),
            scripts=(*content.scripts, "inline.js"),
            attributes={**content.attributes, "class_": "inline"},
        )
    )
    return tag("iframe", "", srcdoc=inner, height=FIRST_HEIGHT, style=STYLE, title=content.heading)


def _receipt(result: Any) -> str | None:
    """A receipt's class is above this room; its page is made of its JSON."""
    to_json: Callable[[], Mapping[str, Any]] | None = getattr(result, "to_json", None)
    return frame(receipt_content(to_json())) if to_json is not None else None


def _page(section: Section) -> Page:
    return Page(
        f"{section.title} · slipstream", section.title, (), [section], styles=("report.css",)
    )


def _summary(result: Summary) -> Section:
    devices, times = plural(len(result.devices), "device"), result.per_step
    basis = f"The median of {plural(result.step_count, 'step')} on {devices}; {result.step_rule}."
    lede = join((tag("b", f"{time_text(times.wall_us)} a step. "), basis))
    top = (
        join((tag("h3", "Longest ops"), _table(result.top, "Longest ops"))) if result.top else None
    )
    body = join((step_bar(times, "The median step"), phases_bar(result), top, warnings(result)))
    return Section("summary", "Summary", body, lede)


def _ops(result: Ops) -> Section:
    span = f"over {plural(result.steps, 'step')}" if result.steps else "of the whole recording"
    lede = (
        f"{plural(len(result.ops), 'op')} by {result.by}, {time_text(result.total_us)} of device "
        f"time {span}; {share_text(result.attributed_share)} belongs to an instruction."
    )
    return Section("ops", "Ops", _table(result.ops, "Ops by device time"), lede)


def _table(ops: tuple[Op, ...], label: str) -> Html:
    times = TimeColumn([op.per_step_us for op in ops])
    has_scopes = any(op.scope for op in ops)
    columns = [
        TableColumn("Op"),
        *([TableColumn("Scope", is_wide=True)] if has_scopes else []),
        TableColumn("Phase", is_wide=True),
        TableColumn("Source", is_wide=True),
        number("Runs per step", wide=True),
        number(f"Per step, {times.unit}"),
        number("Share"),
    ]
    rows: list[Row] = [
        [
            named_cell(op.description or op.instruction, op.instruction),
            *([op.scope] if has_scopes else []),
            op.phase,
            tag("span", file_name(op.source), class_="c at"),
            count_cell(op.per_step_count),
            times.cell(op.per_step_us),
            share_cell(op.share),
        ]
        for op in ops
    ]
    return table(columns, rows, label, more="slipstream ops --json")


def _slack(result: Slack) -> Section:
    return Section("slack", "Slack of collectives and copies", slack_table(result))


def _text(title: str, text: str) -> Section:
    """What the terminal shows, for results that have no page."""
    return Section(title.lower(), title, tag("pre", printable_lines(text), class_="text"))


_PAGES: Mapping[type, Callable[[Any], Section | Page]] = {
    Profile: lambda profile: _summary(summary(profile)),
    Summary: _summary,
    Ops: _ops,
    Overlap: overlap_tables,
    Collectives: collectives_section,
    Slack: _slack,
    Gaps: gaps_section,
    Roofline: roofline_section,
    Memory: memory_section,
    Hosts: hosts_section,
    Network: lambda result: network_content(result, ""),
    Diff: diff_tables,
    Diagnosis: findings_section,
    Prediction: lambda result: prediction_section((result,)),
    Tuning: study_content,
    Plan: plan_content,
    Scheduling: schedule_content,
    CostTable: lambda result: _text("Costs", render_table(result, TEXT_WIDTH).plain),
    Coverage: lambda result: _text("Coverage", render_coverage(result, TEXT_WIDTH).plain),
}
