"""Measured candidates of a plan as text: predicted and measured steps and memory, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.outputs.formatting import time_text
from slipstream.outputs.terminal.layout import Line, TextColumn, table_lines
from slipstream.results.planning import MEASURED, Candidate, MachinePlan
from slipstream.units import format_bytes


def agreement_lines(machine: MachinePlan, width: int, top: int | None = None) -> list[Line]:
    """A table of what was measured, the fastest first; the plan's reasons say the rest."""
    measured = [one for one in machine.candidates if one.basis == MEASURED and one.step_us]
    measured = [one for one in measured if one.same_program_as is None]
    if machine.agreement is None or not measured:
        return []
    columns = [
        TextColumn("#", right=True),
        TextColumn("predicted", right=True),
        TextColumn("measured", right=True),
        TextColumn("error", right=True),
        TextColumn("memory", right=True),
        TextColumn("measured", right=True),
        TextColumn("error", right=True),
        TextColumn("", min_width=16),
    ]
    names = _varying(measured)
    measured.sort(key=lambda one: (one.step_us or 0.0) / (one.work or 1.0))
    rows = [_row(one, names) for one in measured]
    return [("", ""), *table_lines(columns, rows, width, top)]


def _row(one: Candidate, names: Sequence[str]) -> list[str]:
    return [
        str(one.number),
        time_text(one.predicted_us) if one.predicted_us else "–",
        time_text(one.step_us) if one.step_us else "–",
        _error(one.predicted_us, one.step_us),
        format_bytes(one.step_memory_bytes) if one.step_memory_bytes else "–",
        format_bytes(one.measured_memory_bytes) if one.measured_memory_bytes else "–",
        _error(one.step_memory_bytes, one.measured_memory_bytes),
        " ".join(f"{name}={one.choices.get(name, '–')}" for name in names),
    ]


def _error(predicted: float | None, measured: float | None) -> str:
    if not predicted or not measured:
        return "–"
    return f"{100 * (predicted / measured - 1):+.1f}%"


def _varying(candidates: Sequence[Candidate]) -> list[str]:
    """The choices that have more than one value."""
    names = dict.fromkeys(name for one in candidates for name in one.choices)
    return [name for name in names if len({one.choices.get(name) for one in candidates}) > 1]
