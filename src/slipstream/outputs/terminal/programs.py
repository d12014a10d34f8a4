"""`slipstream programs` as text and JSON: all programs, or one in detail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.text import Text

from slipstream.analyses.summary import ProgramSummary
from slipstream.outputs.formatting import file_name, plural, time_text
from slipstream.outputs.terminal.layout import (
    MIN_WIDTH,
    WIDTH,
    TextColumn,
    elide_line,
    styled_text,
    table,
    table_lines,
    wrap,
)
from slipstream.profile.program import Instruction, Program
from slipstream.profile.semantics.backend_config import estimated_cycles, megacore
from slipstream.units import format_bytes


def render_programs(programs: Sequence[ProgramSummary], width: int = WIDTH) -> Text:
    """All programs, in the order given."""
    columns = [
        TextColumn("program", min_width=12),
        TextColumn("fingerprint"),
        TextColumn("executions", right=True),
        TextColumn("instructions", right=True),
        TextColumn("device time", right=True),
        TextColumn("graphs"),
    ]
    rows = [
        (
            program.name,
            (program.fingerprint or "–")[:8],
            str(program.executions),
            _known(program.instructions),
            time_text(program.device_us),
            "yes" if program.command_buffers else "no",
        )
        for program in programs
    ]
    lines = table_lines(columns, rows, max(width, MIN_WIDTH))
    return styled_text(lines if rows else [*lines, ("none", "")])


def program_json(program: Program) -> dict[str, Any]:
    """What `programs PATH NAME --json` prints."""
    return {
        "name": program.name,
        "program_id": program.program_id,
        "fingerprint": program.fingerprint,
        "jaxlib_version": program.jaxlib_version,
        "computations": len(program.computations),
        "instructions": sum(1 for _ in program.scheduled),
        "opcodes": dict(_opcodes(program)),
        "collectives": [_collective(program, found) for found in _collectives(program)],
        "loops": [_loop(program, found) for found in _loops(program)],
        "megacore": _megacore(program),
    }


def render_program(program: Program, width: int = WIDTH) -> Text:
    """What one program consists of: opcodes, collectives, loops."""
    lines = wrap(_header(program), width)
    lines += ["", "instructions by opcode"]
    opcodes = [f"{opcode} {count}" for opcode, count in _opcodes(program)]
    lines += wrap(opcodes, width, separator="  ", indent="  ")
    collectives = [_collective(program, found) for found in _collectives(program)]
    lines += ["", "collectives"] + (_collective_lines(collectives, width) or ["  none"])
    loops = [_loop(program, found) for found in _loops(program)]
    lines += ["", "loops"] + (_loop_lines(loops, width) or ["  none"])
    lines += _megacore_lines(program, width)
    return Text("\n".join(lines))


def _header(program: Program) -> list[str]:
    parts = [program.name]
    if program.program_id is not None:
        parts.append(f"id {program.program_id}")
    parts.append(f"fingerprint {program.fingerprint or 'not recorded'}")
    parts.append(plural(sum(1 for _ in program.scheduled), "instruction"))
    parts.append(plural(len(program.computations), "computation"))
    if program.jaxlib_version:
        parts.append(f"jaxlib {program.jaxlib_version}")
    return parts


def _opcodes(program: Program) -> list[tuple[str, int]]:
    """Opcodes of the instructions that can launch work, most frequent first."""
    counts = Counter(instruction.opcode for instruction in program.scheduled)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _collectives(program: Program) -> list[Instruction]:
    """Communication in the order of the schedule; of an asynchronous pair, only the start."""
    return [
        instruction
        for instruction in program.runnable
        if instruction.collective is not None
        and not instruction.is_done
        and program.starter(instruction.name) is None
    ]


def _collective(program: Program, found: Instruction) -> dict[str, Any]:
    assert found.collective is not None
    return {
        "instruction": found.name,
        "kind": found.collective.kind,
        "bytes": found.collective.bytes,
        "group_size": found.collective.group_size,
        "asynchronous": found.is_start and not found.collective.is_sync,
        "executions": program.executions(found.name),
        "source": _source(found),
    }


def _loops(program: Program) -> list[Instruction]:
    return [instruction for instruction in program.runnable if instruction.opcode == "while"]


def _loop(program: Program, found: Instruction) -> dict[str, Any]:
    body = program.computations.get(found.called[0]) if found.called else None
    return {
        "instruction": found.name,
        "trip_count": found.trip_count,
        "body_instructions": len(body.instructions) if body else None,
        "source": _source(found),
    }


def _megacore(program: Program) -> dict[str, Any] | None:
    """What runs on both TensorCores of a device, of what XLA:TPU states the cycles."""
    known = [found for found in program.runnable if estimated_cycles(found) is not None]
    split = {found.name: cores for found in known if (cores := megacore(found)) is not None}
    if not split:
        return None
    return {
        "both_cores": len(split),
        "one_core": [found.name for found in known if found.name not in split],
        "all_reduces": [
            {
                "instruction": name,
                "bytes": cores.all_reduce_bytes,
                "executions": program.executions(name),
            }
            for name, cores in split.items()
            if cores.all_reduce_bytes
        ],
    }


def _megacore_lines(program: Program, width: int) -> list[str]:
    found = _megacore(program)
    if found is None:
        return []
    parts = [f"{plural(found['both_cores'], 'instruction')} on both TensorCores"]
    if found["one_core"]:
        opcodes = Counter(program.instruction(name).opcode for name in found["one_core"])
        named = ", ".join(f"{opcode} {count}" for opcode, count in opcodes.most_common())
        parts.append(f"{len(found['one_core'])} on one ({named})")
    summed = found["all_reduces"]
    if summed:
        moved = sum(one["bytes"] * (one["executions"] or 1) for one in summed)
        parts.append(f"{len(summed)} add up partial results of the cores: {format_bytes(moved)}")
    return ["", "megacore", *wrap(parts, width, indent="  ")]


def _source(found: Instruction) -> str:
    line = "" if found.source_line is None else f":{found.source_line}"
    return f"{found.source_file}{line}" if found.source_file else ""


def _collective_lines(collectives: list[dict[str, Any]], width: int) -> list[str]:
    columns = [
        TextColumn("instruction", min_width=16),
        TextColumn("kind", min_width=10),
        TextColumn("payload", right=True),
        TextColumn("devices", right=True),
        TextColumn("runs", right=True),
        TextColumn("async"),
        TextColumn("source", min_width=10, max_width=26),
    ]
    rows = [
        (
            c["instruction"],
            c["kind"],
            format_bytes(c["bytes"]),
            _known(c["group_size"]),
            _known(c["executions"]),
            "yes" if c["asynchronous"] else "no",
            file_name(c["source"]),
        )
        for c in collectives
    ]
    return [f"  {line}" for line in table(columns, rows, width - 2)] if rows else []


def _loop_lines(loops: list[dict[str, Any]], width: int) -> list[str]:
    lines = []
    for loop in loops:
        trips, inside = loop["trip_count"], loop["body_instructions"]
        parts = [
            loop["instruction"],
            "an unknown number of times" if trips is None else plural(trips, "time"),
            "" if inside is None else plural(inside, "instruction"),
            file_name(loop["source"]),
        ]
        lines.append(elide_line("  " + " · ".join(part for part in parts if part), width))
    return lines


def _known(count: int | None) -> str:
    return "–" if count is None else str(count)
