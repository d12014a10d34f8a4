"""`slipstream schedule` as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.outputs.formatting import file_name, plural, share_text, time_text
from slipstream.outputs.terminal.layout import (
    WIDTH,
    Line,
    TextColumn,
    paragraph,
    styled_text,
    table,
)
from slipstream.results.scheduling import COSTS, MovedOperation, ScheduledStep, Scheduling
from slipstream.units import format_bytes

MOVED = 8
"""moved operations that are listed"""


def schedule_json(found: Scheduling, order: str | None = None) -> dict[str, Any]:
    """What `schedule --json` prints; `order` is the file that the order was written to."""
    return {
        "machine": found.machine,
        "program": found.program,
        "fingerprint": found.fingerprint,
        "xla": asdict(found.xla),
        "pgle": asdict(found.pgle),
        "ours": asdict(found.ours),
        "bound_us": found.bound_us,
        "closed": found.closed,
        "how": found.how,
        "is_obeyed": found.is_obeyed,
        "nearness": found.nearness,
        "asked_us": found.asked_us,
        "base": found.base,
        "flags": dict(found.flags),
        "moved": [asdict(one) for one in found.moved],
        "bases": [asdict(one) for one in found.bases],
        "seconds": found.seconds,
        "notes": list(found.notes),
        "order": order,
        "versions": dict(found.versions),
    }


def render_schedule(found: Scheduling, width: int = WIDTH) -> Text:
    """The orders side by side, what moved, and what was tried."""
    jaxlib = found.versions.get("jaxlib", "")
    head = f"{found.program} · {found.machine}" + (f" · jaxlib {jaxlib}" if jaxlib else "")
    lines: list[Line] = [(head, "bold"), ("", "")]
    lines += [(line, "") for line in _steps(found, width)]
    lines.append(("", ""))
    lines += [
        (line, "bold green" if _gains(found) else "") for line in paragraph(verdict(found), width)
    ]
    lines += [(line, "") for line in _flags(found, width)]
    if found.moved:
        lines.append(("", ""))
        lines += [(line, "") for line in _moved(found, width)]
    if len(found.bases) > 1:
        lines.append(("", ""))
        lines += [(line, "") for line in _bases(found, width)]
    lines.append(("", ""))
    lines += [
        (line, "yellow")
        for note in schedule_notes(found)
        for line in paragraph(note, width, first="! ", other="  ")
    ]
    return styled_text(lines)


def _steps(found: Scheduling, width: int) -> list[str]:
    columns = [
        TextColumn("order"),
        TextColumn("step", right=True),
        TextColumn("exposed communication", right=True),
        TextColumn("copies", right=True),
        TextColumn("memory", right=True),
    ]
    rows = [
        _row("XLA's", found.xla),
        _row("XLA's with costs", found.pgle),
        _row("ours", found.ours),
        ["no order takes less", time_text(found.bound_us), "", "", ""],
    ]
    return table(columns, rows, width, gap=3)


def _row(name: str, step: ScheduledStep) -> list[str]:
    memory = format_bytes(step.memory_bytes) if step.memory_bytes is not None else "–"
    return [
        name,
        time_text(step.step_us),
        time_text(step.exposed_communication_us),
        time_text(step.exposed_copy_us),
        memory,
    ]


def _gains(found: Scheduling) -> bool:
    return found.ours.step_us < min(found.xla.step_us, found.pgle.step_us)


def verdict(found: Scheduling) -> str:
    """The result in a sentence."""
    if found.ours in (found.xla, found.pgle):
        return "XLA's order stays: none was found that is faster"
    against = [
        f"{found.ours.step_us / other.step_us - 1:+.1%} against {name}"
        for name, other in (("XLA's order", found.xla), ("XLA's with costs", found.pgle))
    ]
    closed = (
        f"; closes {found.closed:.0%} of the gap to the bound" if (found.closed or 0) > 0 else ""
    )
    return f"ours, simulated: {', '.join(against)}{closed}"


def _flags(found: Scheduling, width: int) -> list[str]:
    if not found.flags:
        return []
    said = paragraph(f"with {found.base}:", width)
    return [*said, *(f"  {name} = {value}" for name, value in found.flags.items())]


def _moved(found: Scheduling, width: int) -> list[str]:
    columns = [
        TextColumn("waits that changed", min_width=14),
        TextColumn("source"),
        TextColumn("times", right=True),
        TextColumn("kernels beside", right=True),
        TextColumn("exposed", right=True),
    ]
    rows = [
        [
            one.description or one.instruction,
            file_name(one.source),
            f"{one.times}",
            f"{one.kernels_earlier:+d}",
            _exposed(one),
        ]
        for one in found.moved
    ]
    shown = table(columns, rows[:MOVED], width)
    return [*shown, f"… and {len(rows) - MOVED} more: --json"] if len(rows) > MOVED else shown


def _exposed(one: MovedOperation) -> str:
    before, after = one.exposed_us
    return f"{time_text(before)} → {time_text(after)}"


def _bases(found: Scheduling, width: int) -> list[str]:
    columns = [
        TextColumn("programs that were searched", min_width=20),
        TextColumn("XLA's", right=True),
        TextColumn("ours", right=True),
        TextColumn("at least", right=True),
    ]
    rows = [
        [
            one.name,
            *(
                time_text(us) if us is not None else "–"
                for us in (one.xla_us, one.step_us, one.bound_us)
            ),
        ]
        for one in found.bases
    ]
    return table(columns, rows, width, gap=3)


def schedule_notes(found: Scheduling) -> list[str]:
    """How far the figures can be trusted, and what to do next."""
    notes = list(found.notes)
    if found.how == COSTS:
        near = f"; {share_text(found.nearness)} of starts and kernels" if found.nearness else ""
        asked = f" (its order would take {time_text(found.asked_us)})" if found.asked_us else ""
        notes.append(
            "this JAX takes no order (0.11 does), so XLA's own scheduler was given costs that "
            f"bring it near{near} run in the order asked for{asked}"
        )
    elif found.ours not in (found.xla, found.pgle):
        obeyed = "it runs in this order" if found.is_obeyed else "it does NOT run in this order"
        notes.append(f"read back from what XLA compiled: {obeyed}")
    own_us = next((one.xla_us for one in found.bases if one.name == found.base), None)
    if found.flags and own_us is not None:
        notes.append(
            f"the flags alone give {time_text(own_us)} in XLA's own order; the rest of the gain is "
            "order"
        )
    failed = [one for one in found.bases if one.note and one.bound_us is None]
    if failed:
        notes.append(f"{plural(len(failed), 'program')} could not be searched: {failed[0].note}")
    notes.append("simulated, not measured: slipstream run --schedule compares them on your GPUs")
    return notes
