"""The names under which XLA's scheduler looks costs up.

    %s = all-gather-start(…)      looked up by its own name; its cost is the latency of the pair
    %d = all-gather-done(%s)      never looked up
    %e = fusion-done(%t)          looked up, though the device does nothing for it
    %f = fusion(…)                looked up by its name, kept by `scheduling_name`
    %w = while(…)                 never looked up: its body is scheduled on its own

What runs inside an async wrapper is known to a profile by the wrapped name, so its time goes under
the start's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.program import Instruction, Program

# Not counted as missing by XLA: control flow, and copies, which it inserts after scheduling too.
_NOT_ASKED = {"while", "conditional", "call", "copy", "copy-start", "partition-id", "replica-id"}


_REMAT = re.compile(r"\.remat\d*$")


def lookup_name(program: Program, instruction: str) -> str:
    """The name the scheduler asks for, of an instruction that a profile names.

    Rematerialisation comes after scheduling and clones instructions: `fusion.3.remat2` is another
    execution of what the scheduler knows as `fusion.3`, and so XLA reads it.
    """
    found = program.starter(instruction) or program.instruction(instruction)
    return _REMAT.sub("", found.scheduling_name or found.name)


def is_clone(instruction: str) -> bool:
    """Whether an instruction is a rematerialised copy of another."""
    return _REMAT.search(instruction) is not None


def looked_up(program: Program) -> Iterator[Instruction]:
    """The instructions whose cost the scheduler asks for, in schedule order."""
    for name in _scheduled_computations(program):
        for instruction in program.computations[name].instructions:
            if instruction.opcode in _NOT_ASKED:
                continue
            if not launches_nothing(instruction) or _is_free(program, instruction):
                yield instruction


def never_run(program: Program) -> Iterator[Instruction]:
    """Instructions the scheduler asks for and the device does nothing for: they cost nothing.

    Waits for asynchronous fusions and copies, buffers that are only set aside, and the conditions
    of loops whose trip count is known.
    """
    for instruction in looked_up(program):
        if _is_free(program, instruction) or _is_condition(program, instruction):
            yield instruction


def _is_free(program: Program, instruction: Instruction) -> bool:
    if instruction.opcode == "custom-call":
        return launches_nothing(instruction)
    start = program.partner(instruction.name) if instruction.is_done else None
    return start is not None and start.collective is None and start.opcode not in _NOT_ASKED


def _is_condition(program: Program, instruction: Instruction) -> bool:
    """Whether it is part of a loop condition that is never evaluated."""
    loop = program.caller(instruction.computation)
    if loop is None or loop.opcode != "while" or loop.trip_count is None:
        return False
    return instruction.computation != loop.called[0]


def _scheduled_computations(program: Program) -> list[str]:
    """The entry and what loops call; XLA does not check the branches of conditionals."""
    found = {program.entry.name: None}
    queue = [program.entry.name]
    while queue:
        for instruction in program.computations[queue.pop()].instructions:
            for called in instruction.called if instruction.opcode == "while" else ():
                if called not in found:
                    found[called] = None
                    queue.append(called)
    return list(found)
