"""The launches of a computation, and which of them use the results of which.

norm ──┬── dot.1 ── gelu          a CUDA graph may run dot.1 and dot.2 in either order:
       └── dot.2 ── add           neither needs the other
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from slipstream.profile.attribution.launch_sequence import Launch, launch_of, launches_nothing
from slipstream.profile.events import Array
from slipstream.profile.program import Computation, Instruction, Program

if TYPE_CHECKING:
    from slipstream.profile.semantics.signatures import Signature

_CALLERS = ("while", "call", "conditional")
_FLOPS_PER_PS, _BYTES_PER_PS = 400.0, 3.0
"""what a large GPU does; only ratios of durations are compared"""


class Schedule:
    """The launches of one computation, in order, and which of them use the results of which."""

    def __init__(self, program: Program, computation: Computation) -> None:
        self.program = program
        self.launches: list[Launch] = []
        self.starts: list[Instruction] = []
        self.needs: list[int] = []
        """as bits: the launches whose results each uses, directly or not"""
        self.separators: list[int] = []
        """positions of loops and calls, which no graph contains"""
        self.uses: list[tuple[str, str]] = []
        """(instruction, one that uses its result)"""
        reached: dict[str, int] = {}
        nearest: dict[str, frozenset[str]] = {}
        for instruction in computation.instructions:
            before = (*instruction.operands, *instruction.control_predecessors)
            bits, used = 0, frozenset[str]()
            for name in before:
                bits |= reached.get(name, 0)
                used |= nearest.get(name, frozenset())
            if instruction.opcode in _CALLERS:
                self.separators.append(len(self.launches))
            elif not launches_nothing(instruction):
                self.needs.append(bits)
                bits |= 1 << len(self.launches)
                launch = launch_of(program, instruction)
                self.launches.append(launch)
                self.starts.append(instruction)
                self.uses += [(name, launch.instruction) for name in used]
                used = frozenset((launch.instruction,))
            reached[instruction.name], nearest[instruction.name] = bits, used

    @cached_property
    def of_group(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = defaultdict(list)
        for place, launch in enumerate(self.launches):
            found[launch.group].append(place)
        return found

    @cached_property
    def place_of(self) -> dict[str, int]:
        return {launch.instruction: place for place, launch in enumerate(self.launches)}

    @cached_property
    def expected(self) -> Array:
        """The logarithm of each launch's duration, as far as it can be known."""
        from slipstream.profile.semantics.flops import work

        done = [work(self.program, start) for start in self.starts]
        times = [max(w.flops / _FLOPS_PER_PS, w.bytes / _BYTES_PER_PS, 1e6) for w in done]
        return np.log(times)

    @cached_property
    def signatures(self) -> list[Signature]:
        from slipstream.profile.semantics.signatures import work_signature

        return [work_signature(self.program, start) for start in self.starts]

    def same_work(self, one: int, other: int) -> bool:
        return self.signatures[one] == self.signatures[other]

    def needs_within(self, span: range) -> Array:
        """Which launches of a range (columns) each of them (rows) needs."""
        size = (len(span) + 7) // 8
        mask = (1 << len(span)) - 1
        bits = [(self.needs[place] >> span.start & mask).to_bytes(size, "little") for place in span]
        packed = np.frombuffer(b"".join(bits), np.uint8).reshape(len(span), size)
        return np.unpackbits(packed, axis=1, count=len(span), bitorder="little").astype(bool)

    def around(self, places: Iterable[int], others: Iterable[int]) -> range:
        """The launches that a graph with these may contain: up to loops and other launches."""
        first, last = min(places), max(places)
        after = [place + 1 for place in others if place < first]
        after += [place for place in self.separators if place <= first]
        before = [place for place in others if place > last]
        before += [place for place in self.separators if place > last]
        return range(max(after, default=0), min(before, default=len(self.launches)))


class Schedules:
    """The schedules of a program's computations."""

    def __init__(self, program: Program) -> None:
        self.all = [Schedule(program, computation) for computation in _scheduled(program)]

    def of(self, groups: Sequence[str]) -> Schedule | None:
        """The one with most of these kernels."""
        counted = Counter(groups)

        def known(schedule: Schedule) -> int:
            return sum(n for group, n in counted.items() if group in schedule.of_group)

        best = max(self.all, key=known, default=None)
        return best if best is not None and known(best) else None


def _scheduled(program: Program) -> Iterator[Computation]:
    for name in dict.fromkeys(instruction.computation for instruction in program.scheduled):
        yield program.computations[name]
