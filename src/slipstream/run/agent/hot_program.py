"""Which of a job's programs is the hot one: its step.

It is the largest among those called often enough, once it runs without further compiles. Jobs also
call small programs often, for data or random numbers, before the first step. So a program without
a matmul or convolution has to wait, and so does one much smaller than another that already runs.
A step is often compiled twice, because its first arguments have other (weak) types than its
results; a slightly larger program therefore means nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from slipstream.jaxhooks.compiled_program import CompiledProgram

WORK = (b"dot_general", b"convolution")
"""operations that a step has, as StableHLO names them"""
PATIENCE = 20
"""how many times more calls a program needs that doesn't look like a step"""
MUCH_LARGER = 1.5


@dataclass
class _Seen:
    program: CompiledProgram
    calls: int = 0
    quiet_calls: int = 0
    """calls since the last compile of any program"""


@dataclass
class HotProgramChooser:
    """Sees every compile and call, and finds the hot program as soon as it can."""

    start: int
    """calls before a program can be hot"""
    compiles: int = 0
    _seen: dict[int, _Seen] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def compiled(self, program: CompiledProgram) -> None:
        with self._lock:
            self.compiles += 1
            for seen in self._seen.values():
                seen.quiet_calls = 0

    def called(self, program: CompiledProgram) -> bool:
        """Whether this program is the hot one."""
        with self._lock:
            seen = self._seen.setdefault(id(program), _Seen(program))
            seen.calls += 1
            seen.quiet_calls += 1
            if min(seen.calls, seen.quiet_calls) < self.start:
                return False
            if seen.calls >= PATIENCE * self.start:
                return seen is self._largest(self.start)
            return is_work(program) and not self._is_small(program)

    def _is_small(self, program: CompiledProgram) -> bool:
        """Whether a much larger program already runs."""
        least = MUCH_LARGER * len(program.stablehlo)
        others = (seen.program for seen in self._seen.values())
        return any(is_work(other) and len(other.stablehlo) > least for other in others)

    def busiest(self) -> tuple[str, int] | None:
        """The largest program that ran, and how often; for messages."""
        with self._lock:
            found = self._largest(1)
            if found is None:
                return None
            name = found.program.name
            return name, sum(s.calls for s in self._seen.values() if s.program.name == name)

    def _largest(self, calls: int) -> _Seen | None:
        called = [seen for seen in self._seen.values() if seen.calls >= calls]
        return max(called, key=_weight, default=None)


def is_work(program: CompiledProgram) -> bool:
    return any(name in program.stablehlo for name in WORK)


def _weight(seen: _Seen) -> tuple[bool, int]:
    return is_work(seen.program), len(seen.program.stablehlo)
