"""`slipstream schedule` as an HTML page: orders side by side, and one layer before and after."""

from __future__ import annotations

import os
from collections.abc import Sequence

from slipstream.outputs.formatting import file_name, time_text
from slipstream.outputs.html.charts import BarPart, Lane, bar, lanes, legend
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Page, Section, notes_of, page
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    bytes_cell,
    count_cell,
    named_cell,
    number,
    table,
    us_cell,
)
from slipstream.outputs.terminal.compiled.schedule import schedule_notes, verdict
from slipstream.results.scheduling import LayerEvent, LayerTimelines, ScheduledStep, Scheduling
from slipstream.writing import atomic_write


def schedule_page(found: Scheduling) -> str:
    """The whole page."""
    return page(schedule_content(found))


def schedule_content(found: Scheduling) -> Page:
    """What the page has."""
    sections = [_orders(found)]
    if found.layer is not None:
        sections.append(_layer(found.layer))
    if found.moved:
        sections.append(_moved(found))
    if len(found.bases) > 1:
        sections.append(_bases(found))
    jaxlib = found.versions.get("jaxlib", "")
    return Page(
        title=f"Schedule · {found.program} · slipstream",
        heading=f"Schedule: {found.program}",
        facts=[found.machine, f"jaxlib {jaxlib}" if jaxlib else "", "simulated"],
        sections=sections,
    )


def write_schedule(found: Scheduling, path: str | os.PathLike[str]) -> None:
    """Write the page."""
    with atomic_write(path) as temporary:
        temporary.write_text(schedule_page(found), encoding="utf-8")


def _orders(found: Scheduling) -> Section:
    steps = (("XLA's order", found.xla), ("XLA's with costs", found.pgle), ("ours", found.ours))
    most = max(step.step_us for _, step in steps)
    rows = [
        tag(
            "div",
            tag("span", name, class_="lane-name"),
            bar(_parts(step), f"{name}: {time_text(step.step_us)}", most),
            class_="lane-row",
        )
        for name, step in steps
    ]
    key = legend(_parts(found.ours), found.ours.step_us)
    body = join((tag("div", rows, class_="lanes"), key, _table(found, steps), _flags(found)))
    return Section(
        "orders", "Orders", join((body, notes_of(schedule_notes(found)))), verdict(found)
    )


def _parts(step: ScheduledStep) -> list[BarPart]:
    exposed, copies = step.exposed_communication_us, step.exposed_copy_us
    rest = max(step.step_us - exposed - copies, 0.0)
    return [
        BarPart("compute and gaps", rest, "compute", time_text(rest)),
        BarPart("exposed communication", exposed, "communication", time_text(exposed)),
        BarPart("exposed copies", copies, "copy", time_text(copies)),
    ]


def _table(found: Scheduling, steps: Sequence[tuple[str, ScheduledStep]]) -> Html:
    columns = [
        TableColumn("order"),
        number("step"),
        number("exposed communication"),
        number("exposed copies"),
        number("memory"),
    ]
    rows: list[Row] = [
        [
            name,
            us_cell(step.step_us),
            us_cell(step.exposed_communication_us),
            us_cell(step.exposed_copy_us),
            bytes_cell(step.memory_bytes),
        ]
        for name, step in steps
    ]
    rows.append(["no order takes less", us_cell(found.bound_us), "", "", ""])
    return table(columns, rows, "Orders")


def _flags(found: Scheduling) -> Html:
    if not found.flags:
        return Html("")
    said = "\n".join(f"{name} = {value}" for name, value in found.flags.items())
    about = tag("p", f"Of the program with {found.base}:", class_="note")
    return join((about, tag("div", tag("pre", said), class_="do")))


def _layer(layer: LayerTimelines) -> Section:
    ends = [max((one.end_us for one in events), default=0.0) for events in (layer.xla, layer.ours)]
    most = max(ends)
    drawn = [
        join(
            (
                tag("h3", f"{name}: {time_text(end)}"),
                lanes(_lanes(events), name, most),
            )
        )
        for name, events, end in (
            ("XLA's order", layer.xla, ends[0]),
            ("ours", layer.ours, ends[1]),
        )
    ]
    lede = (
        f"{layer.what[:1].upper()}{layer.what[1:]}, {layer.times} × per step, on one time axis; "
        "hover over a box for what it is."
    )
    return Section("layer", "One layer, before and after", join(drawn), lede)


def _lanes(events: Sequence[LayerEvent]) -> list[Lane]:
    names = sorted({one.lane for one in events}, key=lambda name: (name != "compute", name))
    return [Lane(name, [_span(one) for one in events if one.lane == name]) for name in names]


def _span(one: LayerEvent) -> tuple[float, float, str, str]:
    kind = "communication" if one.is_communication else "compute"
    if one.lane != "compute" and not one.is_communication:
        kind = "copy"
    took = time_text(one.end_us - one.start_us)
    return one.start_us, one.end_us, kind, f"{one.description or one.name} · {took} · {one.name}"


def _moved(found: Scheduling) -> Section:
    columns = [
        TableColumn("operation"),
        TableColumn("source"),
        number("times"),
        number("kernels beside it"),
        number("exposed before"),
        number("exposed now"),
    ]
    rows: list[Row] = [
        [
            named_cell(one.description or one.instruction, one.instruction),
            file_name(one.source),
            count_cell(one.times),
            Cell(f"{one.kernels_earlier:+d}", one.kernels_earlier),
            us_cell(one.exposed_us[0]),
            us_cell(one.exposed_us[1]),
        ]
        for one in found.moved
    ]
    lede = "Asynchronous operations with more or fewer kernels between their start and their end."
    return Section("moved", "What moved", table(columns, rows, "What moved"), lede, f"{len(rows)}")


def _bases(found: Scheduling) -> Section:
    columns = [
        TableColumn("program"),
        number("XLA's order"),
        number("ours"),
        number("at least"),
        TableColumn(""),
    ]
    rows: list[Row] = [
        [one.name, us_cell(one.xla_us), us_cell(one.step_us), us_cell(one.bound_us), one.note]
        for one in found.bases
    ]
    lede = "Flags give XLA's program more to order: several collectives at once, or one turn ahead."
    return Section(
        "programs", "Programs that were searched", table(columns, rows, "Programs"), lede
    )
