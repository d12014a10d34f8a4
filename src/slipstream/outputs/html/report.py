"""A profile as an HTML report."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from slipstream.analyses.clocks import on_one_clock
from slipstream.outputs.formatting import plural, time_text
from slipstream.outputs.html.page import (
    TIMELINE_SCRIPTS,
    TIMELINE_STYLE,
    Page,
    Section,
    page,
)
from slipstream.outputs.html.report_data import Results
from slipstream.outputs.html.sections.collectives import collectives_section
from slipstream.outputs.html.sections.diff import diff_section
from slipstream.outputs.html.sections.findings import findings_section
from slipstream.outputs.html.sections.gaps import gaps_section
from slipstream.outputs.html.sections.hosts import hosts_section
from slipstream.outputs.html.sections.megascale import megascale_section
from slipstream.outputs.html.sections.memory import memory_section
from slipstream.outputs.html.sections.network import network_section
from slipstream.outputs.html.sections.ops import (
    grouping,
    key_of,
    ops_data,
    ops_section,
    waiting_for,
)
from slipstream.outputs.html.sections.overlap import overlap_section
from slipstream.outputs.html.sections.overview import overview_section
from slipstream.outputs.html.sections.prediction import prediction_section
from slipstream.outputs.html.sections.programs import program_section
from slipstream.outputs.html.sections.roofline import roofline_section
from slipstream.outputs.html.sections.timeline import timeline_section
from slipstream.outputs.html.step_data import StepView, window
from slipstream.writing import atomic_write

KEYS = (
    ("/", "search ops; in the timeline, slices"),
    ("w s", "timeline: zoom in and out"),
    ("a d", "timeline: pan"),
    ("f", "timeline: show everything"),
    (". ,", "timeline: next and previous slice"),
    ("Esc", "timeline: clear the selection"),
)


def report_page(found: Results) -> str:
    """The whole page."""
    drawn = on_one_clock(found.profile)
    shown = window(drawn)
    view = StepView(drawn, shown) if shown is not None else None
    name = _program(found)
    times = time_text(found.summary.per_step.wall_us)
    return page(
        Page(
            title=f"{name} · {times} · slipstream",
            heading=name,
            facts=_facts(found),
            sections=list(_sections(found, view)),
            data=_data(found, view),
            styles=(TIMELINE_STYLE, "report.css"),
            scripts=(
                *TIMELINE_SCRIPTS,
                "numbers.js",
                "treemap.js",
                "ops.js",
                "share.js",
                "step_lanes.js",
                "report.js",
            ),
            keys=KEYS,
        )
    )


def write_report(found: Results, path: str | os.PathLike[str]) -> int:
    """Write the page and return its size in bytes."""
    text = report_page(found).encode("utf-8", "replace")  # names of files may be any bytes
    with atomic_write(path) as temporary:
        temporary.write_bytes(text)
    return len(text)


def report_json(found: Results, output: str, size: int) -> dict[str, Any]:
    """What `report --json` prints."""
    return {
        "output": output,
        "bytes": size,
        "events": found.events,
        "step_us": found.summary.step_median_us,
        "findings": len(found.diagnosis.findings) if found.diagnosis is not None else None,
        "verdict": found.diff.verdict.verdict if found.diff is not None else None,
    }


def _sections(found: Results, view: StepView | None) -> Iterator[Section]:
    if found.predictions:
        yield prediction_section(found.predictions)
    yield overview_section(found)
    if found.diff is not None and found.against is not None:
        names = found.against_name or "before", found.name or "after"
        yield diff_section(found.diff, found.against, found.summary, names)
    if found.diagnosis is not None:
        yield findings_section(found.diagnosis, found.name or "PATH")
    if found.network.guide:
        what_if = found.predictions[0].what_if if found.predictions else None
        yield megascale_section(found.network, what_if)
    yield ops_section(found)
    yield timeline_section(found.profile, view)
    yield overlap_section(found)
    yield collectives_section(found.collectives)
    yield gaps_section(found.gaps)
    yield roofline_section(found.roofline)
    yield network_section(found.network)
    yield memory_section(found.memory)
    if found.hosts.devices > 1:
        yield hosts_section(found.hosts)
    yield program_section(found.profile, found.summary)


def _program(found: Results) -> str:
    if found.predictions:
        return f"{found.predictions[0].program}, predicted"
    programs = found.summary.programs
    return programs[0].name.partition("(")[0] if programs else found.name or "A recording"


def _facts(found: Results) -> list[str]:
    summary = found.summary
    models = list(dict.fromkeys(device.model for device in summary.devices if device.model))
    version = summary.versions.get("jax") or summary.versions.get("jaxlib")
    return [
        f"{plural(len(summary.devices), 'device')}, {', '.join(models)}"
        if models
        else plural(len(summary.devices), "device"),
        plural(len(summary.hosts), "host") if len(summary.hosts) > 1 else "",
        f"jax {version}" if version else "",
        f"{found.events:,} device events",
        found.name,
        f"compared with {found.against_name}" if found.against_name else "",
    ]


def _data(found: Results, view: StepView | None) -> dict[str, Any]:
    """The data for the scripts: the ops, and the step of the timeline."""
    places = {key_of(op): at for at, op in enumerate(found.ops.ops)}
    return {
        "ops": ops_data(found),
        "by": grouping(found),
        "step": view.data(places, waiting_for(found)) if view is not None else None,
    }
