"""Memory: its parts, its use along the schedule, and the buffers live at the peak."""

from __future__ import annotations

from slipstream.analyses.memory import MakerGroup, Memory, ProgramMemory
from slipstream.outputs.formatting import file_name, plural, ratio, share_text
from slipstream.outputs.html.charts import (
    BarPart,
    ChartCurve,
    Lane,
    bar,
    chart,
    curves,
    lanes,
    legend,
    thinned,
)
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section, notes_of
from slipstream.outputs.html.tables import (
    Row,
    TableColumn,
    bytes_cell,
    named_cell,
    number,
    table,
    with_equals,
)
from slipstream.units import format_bytes

MOST_DRAWN = 12
"""buffers whose lives are drawn"""
ENDS = ("first instruction", "last")
POINTS = 600
"""points of a curve: more than a screen shows"""


def memory_section(result: Memory) -> Section:
    """Memory of the program with the most device time."""
    if not result.programs:
        text = "The programs that ran were not recorded, so their memory use is unknown."
        return Section("memory", "Memory", tag("p", text, class_="empty"))
    first, *others = result.programs
    parts = [
        _memory_bar(first, result.capacity_bytes),
        _memory_curve(first),
        _lives(first),
        _makers(first),
    ]
    if others:
        rows: list[Row] = [[one.program, bytes_cell(one.peak_bytes)] for one in others]
        made = table(
            [TableColumn("Program"), number("Memory")], rows, "Memory of other programs", 8
        )
        parts += [tag("h3", "Other programs"), made]
    body = join((*parts, notes_of(result.notes)))
    return Section("memory", "Memory", body, _memory_lede(first, result))


def _memory_lede(program: ProgramMemory, result: Memory) -> str:
    text = f"{program.program} needs {format_bytes(program.peak_bytes)} per device"
    if result.capacity_bytes:
        share = share_text(ratio(program.peak_bytes, result.capacity_bytes))
        text += f", {share} of its {format_bytes(result.capacity_bytes)}"
    where = ", ".join(
        part for part in (program.peak_description, file_name(program.peak_source)) if part
    )
    text += f"; the peak is at {program.peak_at}"
    return text + (f" ({where})." if where else ".")


def _memory_bar(program: ProgramMemory, capacity: int | None) -> Html:
    results = program.results_bytes - program.aliased_bytes
    named = (
        ("arguments", program.arguments_bytes, "p0"),
        ("temporaries", program.temporaries_bytes, "p1"),
        ("results", results, "p3"),
        ("constants", program.constants_bytes, "p4"),
    )
    parts = [
        BarPart(name, size, kind, format_bytes(size)) for name, size, kind in named if size > 0
    ]
    total = max(capacity or 0, program.peak_bytes)
    said = ", ".join(f"{part.name} {part.text}" for part in parts)
    shown = join((bar(parts, f"Memory: {said}", total or None), legend(parts)))
    if not program.host_bytes:
        return tag("div", shown, class_="membar")
    host = f"{format_bytes(program.host_bytes)} of host memory in addition."
    return tag("div", shown, tag("p", host, class_="note"), class_="membar")


def _memory_curve(program: ProgramMemory) -> Html | None:
    sizes = [float(size) for _, size in program.timeline]
    if len(sizes) < 2 or not max(sizes):
        return None
    most, points = max(sizes), thinned(sizes, POINTS)
    plot = curves(
        [ChartCurve(points, "soft"), ChartCurve(points, is_line=True)],
        f"Temporaries along the schedule, at most {format_bytes(most)}",
        most,
        format_bytes(most),
        ENDS,
    )
    facts = [plural(len(sizes), "instruction"), "one iteration per loop"]
    return chart("Temporaries along the schedule", facts, plot, tall=True)


def _lives(program: ProgramMemory) -> Html | None:
    """From where to where in the schedule the largest buffers of the peak are alive."""
    places = {name: at for at, (name, _) in reversed(list(enumerate(program.timeline)))}
    end = len(program.timeline)
    temporary = [one for one in program.makers if one.kind == "temporary"]
    if end < 2 or not temporary:
        return None
    peak = places.get(program.peak_at, 0)
    drawn = [Lane("the peak", [(peak, peak + 1, "bad", f"at {program.peak_at}")])]
    for one in temporary[:MOST_DRAWN]:
        born, last = places.get(one.instruction, 0), places.get(one.last_use, end)
        what = f"{format_bytes(one.bytes)}, {one.shape}, until {one.last_use or 'the end'}"
        size = format_bytes(one.bytes)
        name = (one.description or one.instruction).removesuffix(f" {size}")
        drawn.append(Lane(name, [(born, max(last, born + 1), "accent", what)], size))
    heading = tag("h3", "Where buffers of the peak are alive")
    return join((heading, lanes(drawn, "Alive along the schedule", end, ENDS)))


def _makers(program: ProgramMemory) -> Html:
    columns = [
        TableColumn("Buffer"),
        TableColumn("Kind"),
        number("Bytes"),
        TableColumn("Shape", is_wide=True, is_code=True),
        TableColumn("Source", is_wide=True),
        TableColumn("Last use", is_wide=True, is_code=True),
    ]
    rows = [_maker(maker) for maker in program.groups]
    made = table(columns, rows, "Live at the peak", 10, "slipstream memory --json")
    return join((tag("h3", "Live at the peak"), made))


def _maker(maker: MakerGroup) -> Row:
    count = len(maker.instructions)
    said = maker.description or maker.instruction
    below = with_equals(maker.instruction, count)
    return [
        named_cell(f"{count} × {said}" if count > 1 else said, below),
        maker.kind,
        bytes_cell(maker.bytes),
        maker.shape,
        tag("span", file_name(maker.source), class_="c at"),
        (maker.last_use or "the end") if count == 1 else "–",
    ]
