"""`slipstream diagnose` as text and JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.cells import cell_len
from rich.text import Text

from slipstream.outputs.formatting import (
    file_name,
    plural,
    ratio,
    share_text,
    step_text,
    time_text,
)
from slipstream.outputs.terminal.layout import (
    MIN_WIDTH,
    WIDTH,
    Line,
    TextColumn,
    column_widths,
    elide_op,
    elide_source,
    heading,
    note_lines,
    paragraph,
    styled_text,
    table,
)
from slipstream.outputs.terminal.table_options import arranged, is_match, is_wide, no_match
from slipstream.results.diagnosis import Diagnosis, Exhibit, Finding, Gain, Remedy

INDENT = "   "
GAP = 2
"""columns between two texts of an instruction"""
MAX_EXHIBITS = 3
"""instructions shown of each finding"""


def diagnose_json(diagnosis: Diagnosis, top: int | None = None) -> dict[str, Any]:
    """What `diagnose --json` prints: all findings, or the first `top`."""
    data = asdict(diagnosis)
    data["findings"] = data["findings"][:top]
    for row in data["findings"]:
        likely = row["gain"]["us"]
        row["gain"]["share"] = likely / diagnosis.step_us if likely and diagnosis.step_us else None
    return data


def render_diagnosis(
    diagnosis: Diagnosis,
    width: int = WIDTH,
    top: int | None = None,
    everything: bool = False,
    path: str = "PATH",
    flat: bool = False,
) -> Text:
    """Findings, certain gains first; with `everything`, also the rules that found nothing.

    Equal instructions of several layers are one line, unless `flat`.
    """
    width = max(width, MIN_WIDTH)
    lines = heading(_header(diagnosis), width)
    numbered = [one for one in enumerate(diagnosis.findings, 1) if _is_match(one[1], flat)]
    shown = numbered[:top]
    for number, finding in shown:
        lines += [*_finding(number, finding, diagnosis, width, path, flat), ("", "")]
    if diagnosis.findings and not shown:
        lines += [(no_match().replace("row", "finding"), "bold"), ("", "")]
    if not diagnosis.findings:
        lines += [("no problems found", "bold"), ("", "")]
    left = len(numbered) - len(shown)
    lines += _rest(diagnosis, len(shown), left, width, everything)
    return styled_text([*lines, *note_lines(diagnosis.notes, width)])


def _is_match(finding: Finding, flat: bool) -> bool:
    """Whether `--filter` asks for a finding: for its text, or for an instruction."""
    texts = (finding.rule, finding.title, finding.evidence)
    return is_match((*texts, *(text for one in finding.exhibits for text in _exhibit(one, flat))))


def gain_text(gain: Gain, step_us: float, steps: int = 1) -> str:
    """`saves 17.1 ms per step (3.7%), 12.6 ms to 24.5 ms: simulated`."""
    of = "per step" if steps else "of the recording"
    if gain.us is not None:
        said = f"saves {time_text(gain.us)} {of} ({share_text(ratio(gain.us, step_us))})"
        high = gain.high_us if gain.high_us is not None else gain.us
        if high > gain.low_us:
            low = time_text(gain.low_us) if gain.low_us else "0"
            said += f", {low} to {time_text(high)}"
        return f"{said}: {gain.basis}"
    if gain.high_us is not None:
        share = share_text(ratio(gain.high_us, step_us))
        return f"saves at most {time_text(gain.high_us)} {of} ({share}); exact gain unknown"
    return "gain unknown"


def _header(diagnosis: Diagnosis) -> list[str]:
    parts = [diagnosis.device or "unknown device", diagnosis.program.partition("(")[0]]
    parts.append(step_text(diagnosis.step_us, diagnosis.steps))
    if diagnosis.steps:
        parts.append(plural(diagnosis.steps, "step"))
    parts.append(f"flags of jaxlib {diagnosis.jaxlib}")
    return [part for part in parts if part]


def _finding(
    number: int, finding: Finding, diagnosis: Diagnosis, width: int, path: str, flat: bool
) -> list[Line]:
    first = f"{number}".ljust(len(INDENT))
    lines: list[Line] = [(line, "bold") for line in paragraph(finding.title, width, first, INDENT)]
    if finding.is_wrong:
        lines.append((f"{INDENT}wrong results: fix this first", "red"))
    else:
        said = gain_text(finding.gain, diagnosis.step_us, diagnosis.steps)
        lines += [(line, "green") for line in paragraph(said, width, INDENT, INDENT)]
    lines += [(line, "") for line in paragraph(finding.evidence, width, INDENT, INDENT)]
    lines += _exhibits(finding, width, flat)
    for change in finding.changes:
        lines += _change(change, width, path)
    if finding.see:
        lines.append((_typed("see", finding.see, width, path), "dim"))
    return lines


def _typed(word: str, command: str, width: int, path: str) -> str:
    """A command stays on one line, so that it can be copied; a long path is left out."""
    line = f"{INDENT}{word.ljust(4)} {command.replace('PATH', path)}"
    return line if len(line) <= width else f"{INDENT}{word.ljust(4)} {command}"


_COLUMNS = (
    TextColumn("", key="instruction", min_width=14, max_width=30),
    TextColumn("", key="source", min_width=10, max_width=22, shorten=elide_source),
    TextColumn("", key="count", right=True),
    TextColumn("", key="time", right=True),
    TextColumn("", key="what", min_width=12, weight=2, shorten=elide_op),
    TextColumn("", key="note"),
)
"""of what a finding shows; `key` is what `--columns` and `--sort` call them"""


def _exhibits(finding: Finding, width: int, flat: bool) -> list[Line]:
    """The longest instructions of a finding; their notes go below them where there is no room."""
    rows = [_exhibit(one, flat) for one in finding.exhibits]
    matching = [row for row in rows if is_match(row)]
    asked = arranged(_COLUMNS, rows, are_filtered=bool(matching))
    rows = [list(row) for row in asked.rows[:MAX_EXHIBITS]]
    said = [at for at in range(len(asked.columns)) if any(row[at] for row in rows)]
    if not said:
        return []
    columns = [asked.columns[at] for at in said]
    rows = [[row[at] for at in said] for row in rows]
    indent = INDENT + "  "
    room = width - len(indent)
    names = [one.name for one in columns]
    notes = [""] * len(rows)
    if "note" in names and not is_wide() and not _has_room(columns, rows, room):
        columns.pop(names.index("note"))
        notes = [row.pop(names.index("note")) for row in rows]
    _, *body = table(columns, rows, room, is_fixed=True)
    start = _start(columns, rows, room, names.index("what")) if "what" in names else 0
    lines: list[Line] = []
    for line, note in zip(body, notes, strict=True):
        lines.append((f"{indent}{line}", ""))
        if note:
            left = indent + " " * max(0, min(start, room - cell_len(note)))
            lines += [(text, "") for text in paragraph(note, width, left, left)]
    return lines


def _has_room(columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], room: int) -> bool:
    """Whether only names of instructions are cut in these columns."""
    whole = [one if one.name == "instruction" else replace(one, min_width=None) for one in columns]
    room -= GAP * (len(columns) - 1)
    return sum(column_widths(whole, rows, room)) <= room


def _start(
    columns: Sequence[TextColumn], rows: Sequence[Sequence[str]], room: int, place: int
) -> int:
    """Where a column begins, if it comes before the notes."""
    place = min(place, len(columns) - 1)
    widths = column_widths(columns, rows, room - GAP * (len(columns) - 1))
    return sum(widths[:place]) + GAP * place


def _exhibit(one: Exhibit, flat: bool) -> list[str]:
    times = one.times if flat else one.equal_times or one.times
    us = one.us if flat else one.equal_us or one.us
    return [
        one.name if flat else _names(one),
        file_name(one.source),
        f"{times} ×" if times else "",
        time_text(us) if us else "",
        one.description,
        one.note,
    ]


def _names(one: Exhibit) -> str:
    """`fusion.24, +11`: an instruction, and how many do the same in other layers."""
    return f"{one.name}, +{len(one.equal) - 1}" if len(one.equal) > 1 else one.name


def _change(change: Remedy, width: int, path: str) -> list[Line]:
    indent = f"{INDENT}     "
    lines: list[Line] = [(_typed("do", change.text, width, path), "cyan")]
    note = f"{change.kind}: {change.note}" if change.note else change.kind
    return [*lines, *((line, "dim") for line in paragraph(note, width, indent, indent))]


def _rest(diagnosis: Diagnosis, shown: int, left: int, width: int, everything: bool) -> list[Line]:
    lines: list[Line] = []
    if left:
        lines.append((f"… and {left} more: --top {shown + left}", "dim"))
    if shown > 1:
        said = "gains don't add up: several findings may concern the same time"
        lines += [(line, "dim") for line in paragraph(said, width)]
    if not everything:
        counts = f"{plural(len(diagnosis.clear), 'rule')} found nothing"
        if diagnosis.abstained:
            counts += f", {plural(len(diagnosis.abstained), 'rule')} could not tell"
        return [*lines, (f"{counts}: --all", "dim")]
    reasons: dict[str, list[str]] = {}
    for one in diagnosis.abstained:
        reasons.setdefault(one.why, []).append(one.rule)
    for why, rules in reasons.items():
        said = f"{', '.join(rules)}: {why}"
        lines += [(line, "") for line in paragraph(said, width, "can't tell  ", " " * 12)]
    said = ", ".join(diagnosis.clear) or "none"
    return [*lines, *((line, "") for line in paragraph(said, width, "not found   ", " " * 12))]
