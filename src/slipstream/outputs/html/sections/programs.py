"""Programs, flags, software and devices."""

from __future__ import annotations

from collections import Counter

from slipstream.analyses.summary import ProgramSummary, Summary
from slipstream.outputs.formatting import plural
from slipstream.outputs.html.markup import Html, join, tag
from slipstream.outputs.html.page import Section
from slipstream.outputs.html.tables import (
    Cell,
    Row,
    TableColumn,
    count_cell,
    number,
    table,
    us_cell,
)
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program

MOST_OPCODES = 24


def program_section(profile: Profile, summary: Summary) -> Section:
    """Programs, flags and software."""
    first = _first(profile, summary)
    parts = [
        _programs(summary.programs),
        _flags(first),
        _opcodes(first) if first is not None else None,
        _loops(first) if first is not None else None,
        _software(summary),
        _devices(summary),
        tag("p", f"Steps: {summary.step_rule}.", class_="note"),
    ]
    return Section("program", "Program and flags", join(parts), _lede(summary))


def _lede(summary: Summary) -> str:
    if not summary.programs:
        return "No program was recorded with these events."
    first = summary.programs[0]
    text = f"{first.name} takes the most device time"
    return text + (", and runs in command buffers (CUDA graphs)." if first.command_buffers else ".")


def _first(profile: Profile, summary: Summary) -> Program | None:
    name = summary.programs[0].name if summary.programs else ""
    return profile.programs.get(name)


def _programs(found: tuple[ProgramSummary, ...]) -> Html | None:
    if not found:
        return None
    columns = [
        TableColumn("Program"),
        TableColumn("Fingerprint", is_wide=True, is_code=True),
        number("Instructions", wide=True),
        number("Runs"),
        number("Device time"),
        TableColumn("Command buffers", is_wide=True),
    ]
    rows: list[Row] = [
        [
            one.name,
            (one.fingerprint or "–")[:16],
            count_cell(one.instructions),
            count_cell(one.executions),
            us_cell(one.device_us),
            "yes" if one.command_buffers else "no",
        ]
        for one in found
    ]
    return table(columns, rows, "Programs that ran", 6, "slipstream programs --json")


def _flags(program: Program | None) -> Html:
    heading = tag("h3", "Flags")
    if program is None or not program.flags:
        text = (
            "The recording doesn't contain the XLA flags of this program; "
            "slipstream doctor checks those of the current environment."
        )
        return join((heading, tag("p", text, class_="note")))
    rows = [
        (tag("dt", tag("code", name)), tag("dd", tag("code", value or "(empty)")))
        for name, value in sorted(program.flags.items())
    ]
    return join((heading, tag("dl", rows, class_="pairs")))


def _opcodes(program: Program) -> Html:
    counts = Counter(instruction.opcode for instruction in program.scheduled)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    items = [
        tag("li", tag("code", name), tag("b", f"{count:,}"))
        for name, count in ranked[:MOST_OPCODES]
    ]
    text = f"{plural(sum(counts.values()), 'instruction')} by opcode"
    return join((tag("h3", text), tag("ul", items, class_="legend")))


def _loops(program: Program) -> Html | None:
    loops = [one for one in program.runnable if one.opcode == "while"]
    if not loops:
        return None
    rows: list[Row] = [
        [
            tag("span", loop.name, class_="c"),
            Cell("unknown" if loop.trip_count is None else f"{loop.trip_count:,}", loop.trip_count),
            _body_size(program, loop.called),
        ]
        for loop in loops
    ]
    columns = [TableColumn("Loop"), number("Iterations"), number("Instructions")]
    return join((tag("h3", "Loops"), table(columns, rows, "Loops", 6)))


def _body_size(program: Program, called: tuple[str, ...]) -> Cell:
    body = program.computations.get(called[0]) if called else None
    return count_cell(len(body.instructions) if body is not None else None)


def _software(summary: Summary) -> Html | None:
    if not summary.versions:
        return None
    rows = [(tag("dt", name), tag("dd", value)) for name, value in summary.versions.items()]
    return join((tag("h3", "Software"), tag("dl", rows, class_="pairs")))


def _devices(summary: Summary) -> Html:
    columns = [
        TableColumn("Device"),
        TableColumn("Host"),
        TableColumn("Model"),
        number("Events"),
        number("Busy"),
    ]
    rows: list[Row] = [
        [one.name, one.host, one.model or "–", count_cell(one.events), us_cell(one.busy_us)]
        for one in summary.devices
    ]
    if not rows:
        return tag("p", "No device was recorded.", class_="note")
    return join((tag("h3", "Devices"), table(columns, rows, "Devices", 8)))
