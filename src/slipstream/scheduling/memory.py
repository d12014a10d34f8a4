"""How much memory a computation needs in another order than XLA's.

Liveness (`analyses.liveness`) says which values share a buffer. A temporary is alive from the first
task that touches it to the last, in whatever order they come:

    order 1    gather ▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁▁ matmul      the weight is alive all along
    order 2                            gather ▁ matmul      it is not
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from slipstream.analyses.liveness import TEMPORARY, Liveness
from slipstream.profile.program import Program
from slipstream.scheduling.tasks import Tasks


@dataclass(frozen=True)
class BufferUse:
    """A temporary that only this computation uses, and the tasks that write or read it."""

    bytes: int
    tasks: tuple[int, ...]


def buffers_of(tasks: Tasks, program: Program) -> tuple[BufferUse, ...]:
    """The temporaries that are born and die in one run of a computation."""
    places = _places(tasks, program)
    found = []
    for buffer in Liveness(program).buffers:
        if buffer.kind != TEMPORARY or buffer.is_host or not buffer.bytes:
            continue
        touching = {places.get(name, -1) for name in buffer.touched}
        if -1 not in touching:
            found.append(BufferUse(buffer.bytes, tuple(sorted(touching))))
    return tuple(found)


def peak_bytes(buffers: Sequence[BufferUse], sequence: Sequence[int]) -> int:
    """The most that these buffers take at once."""
    place = {task: number for number, task in enumerate(sequence)}
    changes = [0] * (len(sequence) + 1)
    for buffer in buffers:
        at = [place[task] for task in buffer.tasks]
        changes[min(at)] += buffer.bytes
        changes[max(at) + 1] -= buffer.bytes
    most = alive = 0
    for change in changes:
        alive += change
        most = max(most, alive)
    return most


def _places(tasks: Tasks, program: Program) -> Mapping[str, int]:
    """The task that runs each instruction: its own, or that of the loop around it."""
    own = {name: place for place, name in enumerate(tasks.names)}
    found = dict(own)
    stack = [(name, place) for name, place in own.items()]
    while stack:
        name, place = stack.pop()
        for called in program.instruction(name).called:
            for inside in program.computations[called].instructions if _runs(program, name) else ():
                if inside.name not in found:
                    found[inside.name] = place
                    stack.append((inside.name, place))
    return found


def _runs(program: Program, name: str) -> bool:
    return program.instruction(name).opcode in ("while", "call", "conditional")
