"""The computations of a program that run by themselves: the entry, loop bodies, branches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

from slipstream.profile.program import Computation, Instruction, Program

CALLS = ("while", "call", "conditional")
Length = TypeVar("Length", int, float)


def calls_of(computation: Computation) -> list[Instruction]:
    """The instructions that run other computations."""
    return [one for one in computation.instructions if one.opcode in CALLS]


def from_inside(program: Program) -> Iterator[Computation]:
    """Computations that run by themselves, each after those that it calls."""
    seen: set[str] = set()
    stack = [(program.entry.name, False)]
    while stack:
        name, is_ready = stack.pop()
        if is_ready:
            yield program.computations[name]
        elif name not in seen and name in program.computations:
            seen.add(name)
            stack.append((name, True))
            for one in calls_of(program.computations[name]):
                # A loop's condition decides nothing that could be ordered.
                called = one.called[:1] if one.opcode == "while" else one.called
                stack += [(inner, False) for inner in called]


def length_of(call: Instruction, lengths: Mapping[str, Length]) -> Length:
    """How long an instruction takes that runs computations of these lengths; of branches, the
    longest."""
    runs = [lengths[name] for name in call.called if name in lengths]
    if not runs:
        return next(iter(lengths.values()), 0) * 0
    if call.opcode == "while":
        turns = 1 if call.trip_count is None else call.trip_count
        return turns * lengths[call.called[0]] if call.called[0] in lengths else runs[0] * 0
    return max(runs)
