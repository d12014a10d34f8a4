"""The names under which XLA's scheduler looks costs up.

    %s = all-gather-start(…)      looked up by its own name; its cost is the latency of the pair
    %d = all-gather-done(%s)      never looked up
    %e = fusion-done(%t)          looked up, though the device does nothing for it
    %f = fusion(…)                looked up by its name, kept by `scheduling_name`
    %w = while(…)                 never looked up: its body is scheduled on its own

A profile names operations inside an async wrapper by the wrapped name; their time is stored under
the start's name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.program import Instruction, Program

# XLA doesn't count these as missing: control flow, and copies, which it also inserts later.
_NOT_LOOKED_UP = {
    "while",
    "conditional",
    "call",
    "copy",
    "copy-start",
    "partition-id",
    "replica-id",
}


_REMAT = re.compile(r"\.remat\d*$")


def lookup_name(program: Program, instruction: str) -> str:
    """The name under which the scheduler looks up an instruction of a profile.

    Rematerialisation clones instructions after scheduling: `fusion.3.remat2` is another execution
    of what the scheduler knows as `fusion.3`, and XLA reads it as such.
    """
    found = program.starter(instruction) or program.instruction(instruction)
    return _REMAT.sub("", found.scheduling_name or found.name)


def is_clone(instruction: str) -> bool:
    """Whether an instruction is a rematerialised copy of another."""
    return _REMAT.search(instruction) is not None


def looked_up(program: Program) -> Iterator[Instruction]:
    """The instructions whose cost the scheduler looks up, in schedule order."""
    for name in _scheduled_computations(program):
        for instruction in program.computations[name].instructions:
            if instruction.opcode in _NOT_LOOKED_UP:
                continue
            if not launches_nothing(instruction) or _is_free(program, instruction):
                yield instruction


def never_run(program: Program) -> Iterator[Instruction]:
    """Instructions that the scheduler looks up but the device never runs: they cost nothing.

    Waits for asynchronous fusions and copies, buffer allocations, and the conditions of loops with
    known trip counts.
    """
    for instruction in looked_up(program):
        if _is_free(program, instruction) or _is_condition(program, instruction):
            yield instruction


def _is_free(program: Program, instruction: Instruction) -> bool:
    if instruction.opcode == "custom-call":
        return launches_nothing(instruction)
    start = program.partner(instruction.name) if instruction.is_done else None
    return start is not None and start.collective is None and start.opcode not in _NOT_LOOKED_UP


def _is_condition(program: Program, instruction: Instruction) -> bool:
    """Whether it belongs to a loop condition that is never evaluated."""
    loop = program.caller(instruction.computation)
    if loop is None or loop.opcode != "while" or loop.trip_count is None:
        return False
    return instruction.computation != loop.called[0]


def _scheduled_computations(program: Program) -> list[str]:
    """The entry and the computations of loops; XLA doesn't check the branches of conditionals."""
    found = {program.entry.name: None}
    queue = [program.entry.name]
    while queue:
        for instruction in program.computations[queue.pop()].instructions:
            for called in instruction.called if instruction.opcode == "while" else ():
                if called not in found:
                    found[called] = None
                    queue.append(called)
    return list(found)
