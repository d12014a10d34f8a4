"""The names under which XLA's scheduler looks costs up.

    %s = all-gather-start(…)      asked by its own name; its cost is the latency of the pair
    %d = all-gather-done(%s)      never asked
    %f = fusion(…)                asked by its name, which `scheduling_name` keeps for later passes
    %w = while(…)                 never asked: its body is scheduled on its own

What runs inside an async wrapper is known to a profile by the wrapped name, so its time goes under
the start's.
"""

from __future__ import annotations

from collections.abc import Iterator

from slipstream.profile.launches import is_silent
from slipstream.profile.program import Instruction, Program

# Not counted as missing by XLA: control flow, and copies, which it inserts after scheduling too.
_NOT_ASKED = {"while", "conditional", "call", "copy", "copy-start", "partition-id", "replica-id"}


def lookup_name(program: Program, instruction: str) -> str:
    """The name the scheduler asks for, of an instruction that a profile names."""
    found = program.starter(instruction) or program.instruction(instruction)
    return found.scheduling_name or found.name


def asked(program: Program) -> Iterator[Instruction]:
    """The instructions whose cost the scheduler asks for, in schedule order."""
    for name in _scheduled_computations(program):
        for instruction in program.computations[name].instructions:
            if not is_silent(instruction) and instruction.opcode not in _NOT_ASKED:
                yield instruction


def never_run(program: Program) -> Iterator[Instruction]:
    """Conditions of loops whose trip count is known: the scheduler asks, the device never runs."""
    for instruction in asked(program):
        loop = program.caller(instruction.computation)
        counted = loop is not None and loop.opcode == "while" and loop.trip_count is not None
        if counted and loop is not None and instruction.computation != loop.called[0]:
            yield instruction


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
