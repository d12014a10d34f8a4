"""`slipstream predict` and `simulate` as text and JSON: one column for each machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.machines.machine import BASIS_NAMES
from slipstream.outputs.formatting import (
    band_text,
    clock_text,
    file_name,
    plural,
    power_text,
    share_text,
    time_text,
)
from slipstream.outputs.terminal.compiled.what_if import render_what_if, what_if_json
from slipstream.outputs.terminal.layout import (
    WIDTH,
    Line,
    TextColumn,
    paragraph,
    styled_text,
    table,
)
from slipstream.results.prediction import Prediction, WorstWait
from slipstream.units import format_bytes

Cell = Callable[[Prediction], str]

_WIDE = 110
"""columns of a terminal from which on waits also say what they wait for"""


def prediction_json(
    predictions: Sequence[Prediction], regressions: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """What `predict --json` and `simulate --json` print: of several machines, a list.

    `regressions` are those against a baseline, in the same order.
    """
    found = [_json(prediction) for prediction in predictions]
    for data, regression in zip(found, regressions, strict=False):
        data["regression"] = regression
    return found[0] if len(found) == 1 else {"predictions": found}


def _json(prediction: Prediction) -> dict[str, Any]:
    bounds = prediction.bounds
    return {
        "machine": prediction.machine,
        "devices": prediction.devices,
        "program": prediction.program,
        "step_us": prediction.step_us,
        "low_us": prediction.low_us,
        "high_us": prediction.high_us,
        "compute_us": prediction.compute_us,
        "communication_us": prediction.communication_us,
        "exposed_communication_us": prediction.exposed_communication_us,
        "copy_us": prediction.copy_us,
        "exposed_copy_us": prediction.exposed_copy_us,
        "idle_us": prediction.idle_us,
        "memory_bytes": prediction.memory_bytes,
        "memory_capacity_bytes": prediction.memory_capacity_bytes,
        "mfu": prediction.mfu,
        "power": asdict(prediction.power) if prediction.power else None,
        "bounds": {**asdict(bounds), "gain": bounds.gain(prediction.step_us)},
        "basis": dict(prediction.basis),
        "waits": [asdict(wait) for wait in prediction.waits],
        "messages": [asdict(notice) for notice in prediction.messages],
        "unknown": [asdict(kernel) for kernel in prediction.unknown],
        "what_if": what_if_json(prediction.what_if),
        "fingerprint": prediction.fingerprint,
        "versions": dict(prediction.versions),
    }


def render_predictions(
    predictions: Sequence[Prediction], width: int = WIDTH, waits: bool = False
) -> Text:
    """Predictions side by side."""
    lines: list[Line] = [(predictions[0].program, "bold")]
    lines += [(line, "") for line in _tables(predictions, width)]
    lines.append(("", ""))
    for prediction in predictions:
        lines += _remarks(prediction, width, len(predictions) > 1)
    for prediction in predictions:
        if prediction.what_if is not None:
            lines += render_what_if(prediction.what_if, prediction.machine, width)
    if waits:
        for prediction in predictions:
            lines += _waits(prediction, width)
    return styled_text(lines)


# The table.


def _tables(predictions: Sequence[Prediction], width: int) -> list[str]:
    """As many machines side by side as fit, the others below."""
    rows = _rows(predictions)
    per_table = len(predictions)
    while True:
        tables = [
            _table(rows, predictions[at : at + per_table], width)
            for at in range(0, len(predictions), per_table)
        ]
        if per_table == 1 or max(len(line) for lines in tables for line in lines) <= width:
            break
        per_table -= 1
    between = [line for lines in tables[:-1] for line in (*lines, "")]
    return [*between, *tables[-1], *_basis(predictions, width)]


def _table(
    rows: Sequence[tuple[str, Cell]], predictions: Sequence[Prediction], width: int
) -> list[str]:
    columns = [TextColumn(""), *(TextColumn(p.machine, right=True) for p in predictions)]
    texts = [[name, *(cell(p) for p in predictions)] for name, cell in rows]
    return table(columns, texts, width, gap=3)


def _rows(predictions: Sequence[Prediction]) -> list[tuple[str, Cell]]:
    rows: list[tuple[str, Cell]] = [
        ("step (90% band)", lambda p: band_text(p.step_us, p.low_us, p.high_us)),
        ("  compute", lambda p: time_text(p.compute_us)),
    ]
    if any(p.communication_us for p in predictions):
        rows += [
            ("  communication", lambda p: time_text(p.communication_us)),
            ("    exposed", lambda p: time_text(p.exposed_communication_us)),
        ]
    if any(p.copy_us for p in predictions):
        rows.append(("  exposed copies", lambda p: time_text(p.exposed_copy_us)))
    rows.append(("lower bound", lambda p: time_text(p.bounds.least_us)))
    if any(p.bounds.deciding_link for p in predictions):
        rows.append(("  of the link", lambda p: p.bounds.deciding_link or "–"))
    rows.append(("  overlap could save", _gain))
    if any(p.power for p in predictions):
        rows += [
            ("clock", lambda p: clock_text(p.power) if p.power else "–"),
            ("power", lambda p: power_text(p.power) if p.power else "–"),
        ]
    rows.append(("MFU", lambda p: share_text(p.mfu, 0) if p.mfu is not None else "–"))
    if any(p.memory_bytes is not None for p in predictions):
        rows.append(("memory", _memory))
    if len({p.devices for p in predictions}) > 1:
        rows.insert(1, ("  against the first", lambda p: _scaling(predictions[0], p)))
    return rows


def _gain(prediction: Prediction) -> str:
    if not prediction.bounds.has_gain(prediction.step_us):
        return "nothing"
    return share_text(prediction.bounds.gain(prediction.step_us), 0)


def _memory(prediction: Prediction) -> str:
    if prediction.memory_bytes is None:
        return "–"
    capacity = format_bytes(prediction.memory_capacity_bytes)
    return f"{format_bytes(prediction.memory_bytes)} of {capacity}"


def _scaling(first: Prediction, other: Prediction) -> str:
    """How the step changed: with a fixed batch per device, 1.00× is perfect scaling."""
    return f"{other.step_us / first.step_us:.2f}×" if first.step_us else "–"


def _basis(predictions: Sequence[Prediction], width: int) -> list[str]:
    said = []
    for prediction in predictions:
        parts = [
            f"{share_text(share, 0)} {BASIS_NAMES.get(basis, basis)}"
            for basis, share in prediction.basis.items()
        ]
        text = ", ".join(parts) or "nothing runs"
        if text not in said:
            said.append(text)
    lines = paragraph(f"basis of the times: {'; '.join(said)}", width)
    unknown = {kernel.name: kernel for p in reversed(predictions) for kernel in p.unknown}
    if unknown:
        named = ", ".join(
            f"{kernel.name} ({kernel.times} ×, {share_text(kernel.share, 1)} of compute)"
            for kernel in unknown.values()
        )
        lines += paragraph(f"unknown kernels, at least: {named}", width)
    return lines


# Notes.


def _remarks(prediction: Prediction, width: int, is_one_of_many: bool) -> list[Line]:
    texts = []
    if not prediction.bounds.has_gain(prediction.step_us):
        texts.append("nothing to gain here: even perfect overlap would save less than 2%")
    elif prediction.waits:
        texts.append(_worst(prediction.waits[0]) + "; all of them: --waits")
    used = prediction.memory_bytes
    if used is not None and used > prediction.memory_capacity_bytes:
        texts.append(
            f"does not fit: one device needs {format_bytes(used)} and has "
            f"{format_bytes(prediction.memory_capacity_bytes)}"
        )
    texts += [notice.text for notice in prediction.messages if notice.severity != "info"]
    head = f"{prediction.machine}: " if is_one_of_many else ""
    return [
        (line, "yellow")
        for text in texts
        for line in paragraph(head + text, width, first="! ", other="  ")
    ]


def _worst(wait: WorstWait) -> str:
    size = f"{format_bytes(wait.bytes)}, " if wait.bytes is not None else ""
    place = f"{size}{file_name(wait.source)}".removesuffix(", ")
    where = f" ({place})" if place else ""
    return f"{wait.instruction}{where} waits {time_text(wait.us)} per step: {wait.why}"


def _waits(prediction: Prediction, width: int) -> list[Line]:
    if not prediction.waits:
        return [("", ""), (f"{prediction.machine}: no waits", "")]
    columns = [
        TextColumn(f"waits on {prediction.machine}", min_width=12),
        TextColumn("source"),
        TextColumn("per step", right=True),
        TextColumn("times", right=True),
        TextColumn("why", min_width=10),
    ]
    rows = [
        [w.instruction, file_name(w.source), time_text(w.us), f"{w.times}", w.why]
        for w in prediction.waits
    ]
    if width >= _WIDE:
        columns.insert(1, TextColumn("what", min_width=12))
        for row, wait in zip(rows, prediction.waits, strict=True):
            row.insert(1, wait.description)
    count = plural(len(rows), "wait")
    lines = table(columns, rows, width)
    return [("", ""), *((line, "") for line in lines), (f"{count}, the longest first", "dim")]
