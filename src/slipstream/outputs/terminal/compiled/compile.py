"""`slipstream compile` as text and JSON: collectives, memory, XLA's messages."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.text import Text

from slipstream.outputs.formatting import plural
from slipstream.outputs.terminal.layout import TextColumn, paragraph, table, wrap
from slipstream.units import format_bytes

if TYPE_CHECKING:
    from slipstream.compiler.compilation import Compilation

_MARKS = {"error": "✗ ", "warning": "! ", "info": "· "}


def compile_json(found: Compilation, written: str | None = None) -> dict[str, Any]:
    """What `compile --json` prints."""
    memory = asdict(found.memory)
    return {
        "target": found.target,
        "machine": found.machine.spec,
        "devices": found.devices,
        "program": found.program.name,
        "fingerprint": found.program.fingerprint,
        "instructions": sum(1 for _ in found.program.scheduled),
        "collectives": _collectives(found),
        "memory": {**memory, "peak_bytes": found.memory.peak_bytes, "fits": found.memory.fits},
        "messages": [asdict(message) for message in found.messages],
        "seconds": found.seconds,
        "is_cached": found.is_cached,
        "versions": dict(found.versions),
        "flags": dict(found.flags),
        "proto": str(found.proto),
        "log": str(found.log),
        "written": written,
    }


def render_compile(found: Compilation, width: int = 80, written: str | None = None) -> Text:
    """The same for a terminal."""
    lines = wrap(_header(found), width)
    lines += ["", *_collective_lines(_collectives(found), width), "", *_memory_lines(found, width)]
    notes = [line for message in found.messages for line in _note(message, width)]
    lines += ["", *notes] if notes else []
    lines += ["", f"written: {written}"] if written else []
    return Text("\n".join(lines))


def _header(found: Compilation) -> list[str]:
    took = "from the cache" if found.is_cached else f"compiled in {found.seconds:.1f} s"
    count = sum(1 for _ in found.program.scheduled)
    return [
        found.program.name,
        f"{plural(found.devices, 'device')} of {found.machine.spec}",
        plural(count, "instruction"),
        f"fingerprint {(found.program.fingerprint or 'unknown')[:8]}",
        f"{_compiler(found)}, no {found.machine.kind.upper()} needed",
        took,
    ]


def _compiler(found: Compilation) -> str:
    package = "libtpu" if found.machine.kind == "tpu" else "jaxlib"
    return f"{package} {found.versions.get(package, 'unknown')}"


def _collectives(found: Compilation) -> list[dict[str, Any]]:
    """By kind: instructions, executions in a step, and bytes."""
    program = found.program
    kinds: dict[str, list[tuple[int, int | None]]] = defaultdict(list)
    for one in program.scheduled:
        if one.collective is not None and not one.is_done:
            kinds[one.collective.kind].append((one.collective.bytes, program.executions(one.name)))
    rows = []
    for kind, each in sorted(kinds.items()):
        runs = [count for _, count in each]
        known = None not in runs
        rows.append(
            {
                "kind": kind,
                "instructions": len(each),
                "executions": sum(c for c in runs if c is not None) if known else None,
                "bytes": sum(size * (c or 0) for size, c in each) if known else None,
            }
        )
    return rows


def _collective_lines(rows: list[dict[str, Any]], width: int) -> list[str]:
    if not rows:
        return ["no collectives"]
    columns = [TextColumn("collectives", min_width=12)]
    columns += [TextColumn(name, right=True) for name in ("instructions", "runs", "payload")]
    cells = [
        [
            str(row["kind"]),
            str(row["instructions"]),
            "unknown" if row["executions"] is None else str(row["executions"]),
            "unknown" if row["bytes"] is None else format_bytes(row["bytes"]),
        ]
        for row in rows
    ]
    return table(columns, cells, width)


def _memory_lines(found: Compilation, width: int) -> list[str]:
    memory = found.memory
    whole = f"{format_bytes(memory.peak_bytes)} of {format_bytes(memory.capacity_bytes)}"
    parts = [
        f"memory of each {found.machine.chip.name}: {whole}",
        f"arguments {format_bytes(memory.arguments_bytes)}",
        f"temporary {format_bytes(memory.temporaries_bytes)}",
        f"results {format_bytes(memory.outputs_bytes)}",
        f"aliased to arguments {format_bytes(memory.aliased_bytes)}",
    ]
    if memory.host_bytes:
        parts.append(f"on the host {format_bytes(memory.host_bytes)}")
    return wrap(parts, width)


def _note(message: Any, width: int) -> list[str]:
    return paragraph(message.text, width, _MARKS[message.severity], "  ")
