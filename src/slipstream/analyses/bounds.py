"""Lower bounds of the step time: is there anything to gain from better overlap?

step           ████░░░░████████░░░░░░████      with waits
compute        ████████████████                all kernels, one after the other, without waits
critical path  ██══════════██════████          the longest chain of dependent instructions, with
                                               unlimited streams
links          ═════════════════════           the busiest link: all its bytes, one after the other
memory         ████████                        every byte once, at full memory bandwidth

No schedule of this program beats the longest of `compute`, `critical path` and `links`; `memory` is
what better kernels could reach with any schedule.  A link (`machines.links`) carries its bytes at
the rate that each collective reaches alone, so that running several at once gains nothing.  Loop
iterations follow each other, as XLA runs them: only pipelining, which changes the program, overlaps
them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from slipstream.machines.links import LINKS, link_names, program_loads
from slipstream.machines.machine import Estimate, Machine
from slipstream.profile.attribution.launch_sequence import launches_nothing
from slipstream.profile.program import Computation, Instruction, Program
from slipstream.profile.semantics.traffic import device_bytes

WORTHWHILE = 0.02
"""a smaller gain is within the noise: two runs of one program differ as much"""


@dataclass(frozen=True)
class Bounds:
    """Lower bounds of one step, in microseconds; the module's docstring explains each."""

    compute_us: float
    critical_path_us: float
    memory_us: float
    least_us: float
    """the least that any schedule of this program can take"""
    links_us: Mapping[str, float] = field(default_factory=dict)
    """time of each link of the GPU that the program uses, by name, the busiest first"""

    @property
    def deciding_link(self) -> str | None:
        """The link whose bytes alone take `least_us`, if there is one."""
        name, us = next(iter(self.links_us.items()), ("", 0.0))
        return name if us and us >= self.least_us else None

    def gain(self, step_us: float) -> float:
        """The share of the step that perfect overlap would save at most."""
        return max(0.0, 1 - self.least_us / step_us) if step_us else 0.0

    def has_gain(self, step_us: float) -> bool:
        """Whether the gain would be large enough to measure."""
        return self.gain(step_us) >= WORTHWHILE


def bounds(program: Program, estimates: Mapping[str, Estimate], machine: Machine) -> Bounds:
    """Lower bounds of one step, from the cost of each instruction."""
    counted = _Counted(program, estimates, machine)
    computation = counted.of(program.entry.name)
    named = zip(link_names(machine), computation.links, strict=True)
    times = sorted(named, key=lambda one: -one[1])
    return Bounds(
        computation.compute,
        computation.path,
        computation.memory,
        computation.least,
        {name: us for name, us in times if us},
    )


@dataclass(frozen=True)
class _Least:
    """The bounds of one run of a computation."""

    compute: float = 0.0
    """all kernels, one after the other"""
    path: float = 0.0
    """the critical path"""
    memory: float = 0.0
    least: float = 0.0
    links: tuple[float, ...] = (0.0,) * len(LINKS)

    def times(self, count: int) -> _Least:
        columns = (self.compute, self.path, self.memory, self.least)
        compute, path, memory, least = (count * column for column in columns)
        return _Least(compute, path, memory, least, tuple(count * us for us in self.links))


class _Counted:
    def __init__(
        self, program: Program, estimates: Mapping[str, Estimate], machine: Machine
    ) -> None:
        self.program = program
        self.estimates = estimates
        self.bandwidth = machine.chip.memory_bandwidth
        self.loads = program_loads(machine, program, estimates)
        self.known: dict[str, _Least] = {}

    def of(self, name: str) -> _Least:
        if name not in self.known:
            self.known[name] = _Least()  # ends the recursion of computations that call themselves
            self.known[name] = self._computation(self.program.computations[name])
        return self.known[name]

    def _computation(self, computation: Computation) -> _Least:
        inner = {i.name: self._called(i) for i in computation.instructions if i.called}
        compute = memory = serial = 0.0
        links = [0.0] * len(LINKS)
        for instruction in computation.instructions:
            called = inner.get(instruction.name)
            for load in self.loads.get(instruction.name, ()):
                links[load.link] += load.us
            if called is not None:
                links = [one + other for one, other in zip(links, called.links, strict=True)]
                compute += called.compute
                memory += called.memory
                # Waits inside a loop hold up the compute stream.
                serial += called.least
            elif self._is_compute(instruction):
                us = self._us(instruction)
                compute += us
                serial += us
                memory += device_bytes(self.program, instruction) / self.bandwidth * 1e6
        path = _critical_path(computation, lambda i: _path(inner.get(i.name), self._us(i)))
        return _Least(compute, path, memory, max(serial, path, *links), tuple(links))

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
        """Whether it needs the GPU's cores: neither communication nor a copy engine's work."""
        if launches_nothing(instruction) or instruction.collective is not None:
            return False
        return not instruction.is_start


def _path(called: _Least | None, us: float) -> float:
    return us if called is None else called.least


def _critical_path(computation: Computation, us: Callable[[Instruction], float]) -> float:
    """The length of the longest chain of instructions in which each depends on the one before."""
    ends: dict[str, float] = {}
    # A schedule lists every instruction after those it depends on.
    for instruction in computation.instructions:
        needed = (*instruction.operands, *instruction.control_predecessors)
        begin = max((ends.get(name, 0.0) for name in needed), default=0.0)
        ends[instruction.name] = begin + us(instruction)
    return max(ends.values(), default=0.0)
