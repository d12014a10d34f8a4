"""`slipstream diagnose` as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

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
    elide_source,
    heading,
    note_lines,
    paragraph,
    styled_text,
    table,
)
from slipstream.results.diagnosis import Diagnosis, Exhibit, Finding, Gain, Remedy

INDENT = "   "
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
    shown = diagnosis.findings[:top]
    for number, finding in enumerate(shown, 1):
        lines += [*_finding(number, finding, diagnosis, width, path, flat), ("", "")]
    if not diagnosis.findings:
        lines += [("no problems found", "bold"), ("", "")]
    lines += _rest(diagnosis, len(shown), width, everything)
    return styled_text([*lines, *note_lines(diagnosis.notes, width)])


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
    lines += _exhibits(finding.exhibits[:MAX_EXHIBITS], width, flat)
    for change in finding.changes:
        lines += _change(change, width, path)
    if finding.see:
        lines.append((_typed("see", finding.see, width, path), "dim"))
    return lines


def _typed(word: str, command: str, width: int, path: str) -> str:
    """A command stays on one line, so that it can be copied; a long path is left out."""
    line = f"{INDENT}{word.ljust(4)} {command.replace('PATH', path)}"
    return line if len(line) <= width else f"{INDENT}{word.ljust(4)} {command}"


def _exhibits(exhibits: tuple[Exhibit, ...], width: int, flat: bool) -> list[Line]:
    if not exhibits:
        return []
    columns = [
        TextColumn("", min_width=12, max_width=30),
        TextColumn("", min_width=10, max_width=22, shorten=elide_source),
        TextColumn("", right=True),
        TextColumn("", right=True),
        TextColumn("", min_width=12),
    ]
    rows = [
        [
            one.name if flat else _names(one),
            file_name(one.source),
            f"{times} ×" if (times := one.times if flat else one.equal_times or one.times) else "",
            time_text(us) if (us := one.us if flat else one.equal_us or one.us) else "",
            ", ".join(part for part in (one.description, one.note) if part),
        ]
        for one in exhibits
    ]
    indent = INDENT + "  "
    _, *body = table(columns, rows, width - len(indent), is_fixed=True)
    return [(f"{indent}{line}", "") for line in body]


def _names(one: Exhibit) -> str:
    """`fusion.24, +11`: an instruction, and how many do the same in other layers."""
    return f"{one.name}, +{len(one.equal) - 1}" if len(one.equal) > 1 else one.name


def _change(change: Remedy, width: int, path: str) -> list[Line]:
    indent = f"{INDENT}     "
    lines: list[Line] = [(_typed("do", change.text, width, path), "cyan")]
    note = f"{change.kind}: {change.note}" if change.note else change.kind
    return [*lines, *((line, "dim") for line in paragraph(note, width, indent, indent))]


def _rest(diagnosis: Diagnosis, shown: int, width: int, everything: bool) -> list[Line]:
    lines: list[Line] = []
    if left := len(diagnosis.findings) - shown:
        lines.append((f"… and {left} more: --top {len(diagnosis.findings)}", "dim"))
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
