"""The least a step can take, so that no overlap work is begun that can't pay.

compute       ████░░░░████████░░░░░░████      the step, with waits
compute alone ████████████████                all kernels, one after the other, without waits
dependencies  ██══════════██════████          the longest chain of results that need each other,
                                              with as many streams as anyone could want
memory        ████████                        every byte once over the memory's full bandwidth

No schedule of this program beats the longer of the first two; `memory` is what better kernels
could reach, whatever the schedule.  A loop's turns follow each other, as XLA runs them: only
pipelining, which changes the program, overlaps them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slipstream.machines.machine import Estimate, Machine
from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.program import Computation, Instruction, Program
from slipstream.profile.semantics.traffic import bytes_accessed

WORTHWHILE = 0.02
"""a gain below this is lost in the noise of a step: two runs of one program differ as much"""


@dataclass(frozen=True)
class Bounds:
    """Microseconds of one step, each with its own assumption; see the module's text."""

    compute_us: float
    critical_path_us: float
    memory_us: float
    least_us: float
    """the least that any schedule of this program can take"""

    def gain(self, step_us: float) -> float:
        """The share of the step that perfect overlap would save, at most."""
        return max(0.0, 1 - self.least_us / step_us) if step_us else 0.0

    def has_gain(self, step_us: float) -> bool:
        """Whether there is anything to gain that one could measure."""
        return self.gain(step_us) >= WORTHWHILE


def bounds(program: Program, estimates: Mapping[str, Estimate], machine: Machine) -> Bounds:
    """Bounds of one step, from what each instruction costs."""
    counted = _Counted(program, estimates, machine)
    computation = counted.of(program.entry.name)
    return Bounds(computation.compute, computation.path, computation.memory, computation.least)


@dataclass(frozen=True)
class _Least:
    """The bounds of one run of a computation."""

    compute: float = 0.0
    """kernels, one after the other"""
    path: float = 0.0
    memory: float = 0.0
    least: float = 0.0

    def times(self, count: int) -> _Least:
        columns = (self.compute, self.path, self.memory, self.least)
        return _Least(*(count * column for column in columns))


class _Counted:
    def __init__(
        self, program: Program, estimates: Mapping[str, Estimate], machine: Machine
    ) -> None:
        self.program = program
        self.estimates = estimates
        self.bandwidth = machine.gpu.memory_bandwidth
        self.known: dict[str, _Least] = {}

    def of(self, name: str) -> _Least:
        if name not in self.known:
            self.known[name] = _Least()  # for computations that call themselves
            self.known[name] = self._computation(self.program.computations[name])
        return self.known[name]

    def _computation(self, computation: Computation) -> _Least:
        inner = {i.name: self._called(i) for i in computation.instructions if i.called}
        compute = memory = serial = 0.0
        for instruction in computation.instructions:
            called = inner.get(instruction.name)
            if called is not None:
                compute += called.compute
                memory += called.memory
                # What a loop waits for inside, it waits for on the stream of the kernels.
                serial += called.least
            elif self._is_compute(instruction):
                us = self._us(instruction)
                compute += us
                serial += us
                memory += bytes_accessed(self.program, instruction) / self.bandwidth * 1e6
        path = _longest(computation, lambda i: _path(inner.get(i.name), self._us(i)))
        return _Least(compute, path, memory, max(serial, path))

    def _called(self, instruction: Instruction) -> _Least | None:
        if instruction.opcode == "while":
            count = 1 if instruction.trip_count is None else instruction.trip_count
            return self.of(instruction.called[0]).times(count)
        if instruction.opcode in ("conditional", "call"):
            branches = [self.of(name) for name in instruction.called]
            return max(branches, key=lambda branch: branch.least)
        return None

    def _us(self, instruction: Instruction) -> float:
        estimate = self.estimates.get(instruction.name)
        return estimate.us if estimate is not None and not launches_nothing(instruction) else 0.0

    def _is_compute(self, instruction: Instruction) -> bool:
        """Whether only the cores can do it: neither communication nor what a copy engine does."""
        if launches_nothing(instruction) or instruction.collective is not None:
            return False
        return not instruction.is_start


def _path(called: _Least | None, us: float) -> float:
    return us if called is None else called.least


def _longest(computation: Computation, us: Callable[[Instruction], float]) -> float:
    """The longest chain of instructions in which each needs the one before it."""
    ends: dict[str, float] = {}
    # Instructions come after what they need: that is what a schedule is.
    for instruction in computation.instructions:
        needed = (*instruction.operands, *instruction.control_predecessors)
        begin = max((ends.get(name, 0.0) for name in needed), default=0.0)
        ends[instruction.name] = begin + us(instruction)
    return max(ends.values(), default=0.0)
