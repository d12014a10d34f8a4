"""`slipstream memory` as text and JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.text import Text

from slipstream.analyses.memory import MakerGroup, Memory, ProgramMemory
from slipstream.outputs.formatting import file_name, op_text, ratio, share_text
from slipstream.outputs.terminal.layout import (
    MIN_WIDTH,
    WIDTH,
    Line,
    TextColumn,
    elide_op,
    elide_source,
    heading,
    note_lines,
    styled_text,
    table_lines,
)
from slipstream.units import format_bytes


def memory_json(result: Memory) -> dict[str, Any]:
    """What `memory --json` prints."""
    return {
        "model": result.model,
        "capacity_bytes": result.capacity_bytes,
        "programs": [_json(program) for program in result.programs],
        "notes": list(result.notes),
    }


def _json(program: ProgramMemory) -> dict[str, Any]:
    found = {**asdict(program), "peak_bytes": program.peak_bytes}
    found["timeline"] = [{"instruction": name, "bytes": size} for name, size in program.timeline]
    return found


def render_memory(
    result: Memory, width: int = WIDTH, top: int | None = None, flat: bool = False
) -> Text:
    """The memory of the first program in full, and one line for each other program.

    Equal buffers are one line, unless `flat`.
    """
    width = max(width, MIN_WIDTH)
    if not result.programs:
        lines: list[Line] = [("the profile contains none of the programs that ran", "")]
        return styled_text([*lines, *note_lines(result.notes, width)])
    first, *others = result.programs
    lines = heading(_heading(first, result), width)
    lines += _parts(first, width)
    lines += [("", ""), *_makers(first, width, top, flat)]
    if others:
        columns = [TextColumn("other programs", min_width=14), TextColumn("memory", right=True)]
        rows = [[one.program, format_bytes(one.peak_bytes)] for one in others]
        lines += [("", ""), *table_lines(columns, rows, width, top)]
    return styled_text([*lines, *note_lines(result.notes, width)])


def _heading(program: ProgramMemory, result: Memory) -> list[str]:
    parts = [program.program, format_bytes(program.peak_bytes)]
    if result.capacity_bytes:
        share = share_text(ratio(program.peak_bytes, result.capacity_bytes))
        parts[-1] += f" of {format_bytes(result.capacity_bytes)} ({share})"
    at = program.peak_at
    where = ", ".join(p for p in (program.peak_description, file_name(program.peak_source)) if p)
    return [*parts, f"peak at {at}{f' ({where})' if where else ''}"]


def _parts(program: ProgramMemory, width: int) -> list[Line]:
    rows = [
        ["arguments", format_bytes(program.arguments_bytes), "always allocated"],
        [
            "results",
            format_bytes(program.results_bytes - program.aliased_bytes),
            f"{format_bytes(program.aliased_bytes)} more reuse argument buffers",
        ],
        ["temporaries", format_bytes(program.temporaries_bytes), "at the peak"],
    ]
    if program.constants_bytes >= 1000:
        rows.append(["constants", format_bytes(program.constants_bytes), ""])
    if program.host_bytes:
        rows.append(["host memory", format_bytes(program.host_bytes), "in addition"])
    columns = [TextColumn(""), TextColumn("bytes", right=True), TextColumn("", min_width=10)]
    return table_lines(columns, rows, width)


def _makers(program: ProgramMemory, width: int, top: int | None, flat: bool) -> list[Line]:
    shown = program.makers if flat else program.groups
    counts = [len(maker.instructions) if isinstance(maker, MakerGroup) else 1 for maker in shown]
    has_count = max(counts[:top], default=1) > 1
    columns = [
        *([TextColumn("", right=True, key="count")] if has_count else []),
        TextColumn("live at the peak", min_width=16),
        TextColumn("bytes", right=True),
        TextColumn("kind"),
        TextColumn("what", min_width=14, weight=2, shorten=elide_op),
        TextColumn("source", min_width=8, max_width=20, shorten=elide_source),
        TextColumn("last use", min_width=10, is_optional=True),
    ]
    rows = [
        [
            *([f"{count} ×"] if has_count else []),
            maker.instruction,
            format_bytes(maker.bytes),
            maker.kind,
            op_text(maker.phase, maker.scope, maker.description),
            file_name(maker.source),
            (maker.last_use or "the end") if count == 1 else "–",
        ]
        for maker, count in zip(shown, counts, strict=True)
    ]
    return table_lines(columns, rows, width, top)
