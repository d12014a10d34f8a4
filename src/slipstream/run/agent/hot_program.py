"""Which of a job's programs are hot: those that the devices spend their time on.

    calls     1        2 … 6               7 …                    a compile      2 … 6
    program   loaded   waited for, timed   counted, not waited    anew           timed again

A program's time is that of an undisturbed call times its calls. What runs once, or no longer, is
left out, and so is what runs while programs are still being compiled: that is the job's start. A
program without products that a thread beside the main one calls prepares data.

The first choice is measured alone. If another program then takes much more time, it takes over: an
evaluation may come before the training. Once a program is measured, those that share its loop and
matter are next: gradient and update, say.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary, WeakSet

from slipstream.jaxhooks.compiled_program import CompiledProgram

WORK = (b"dot_general", b"convolution")
"""operations that a step has, as StableHLO names them"""
SAMPLES = 5
"""calls of a program that are timed, after each compile"""
MOST_SAMPLES = 100
"""in all: a job that compiles all the time is not to be slowed down all the time"""
PATIENCE = 20
"""how many times more calls the first choice needs if it has no product and no convolution"""
FILLS = 0.5
"""the share of the time that such a program must take"""
MATTERS = 0.1
"""the share of device time from which a program is measured in its own right"""
NEGLIGIBLE = 0.01
"""the share below which a program is no longer watched"""
TAKES_OVER = 2.0
"""how many times more device time than the program being measured another must take"""
MOST_WATCHED = 200
"""calls after which a program that doesn't matter is no longer watched"""


@dataclass
class _Seen:
    """One program's calls and times."""

    name: str
    is_work: bool
    times_s: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    calls: int = 0
    samples: int = 0
    """in all"""
    recent_calls: int = 0
    """since the last compile"""
    recent_samples: int = 0
    loop_calls: int = 0
    """since the first choice"""
    first_s: float = 0.0
    """when its first call, which loads it, was over"""
    last_s: float = 0.0
    """when it was called last"""
    last_call: int = 0
    """the number of that call, among those of all programs"""
    is_aside: bool = False
    """whether that call came from another thread than the main one"""

    @property
    def each_s(self) -> float:
        """Of a call: the quickest of the last few, since a busy host only makes them longer."""
        return min(self.times_s, default=0.0)

    @property
    def recent_s(self) -> float:
        return self.each_s * self.recent_calls

    @property
    def loop_s(self) -> float:
        return self.each_s * self.loop_calls


class HotProgramChooser:
    """Sees every compile and call, and says which program to measure next."""

    def __init__(
        self,
        start: int,
        functions: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.start = start
        """calls before a program can be hot"""
        self._functions = [function_name(name) for name in functions]
        """the user's choice, if any"""
        self._clock = clock
        self._calls = 0
        self._has_main_called = False
        self._compiled_s = clock()
        self._chosen_s = 0.0
        """when the first choice was made"""
        self._active: CompiledProgram | None = None
        self._measured: WeakSet[CompiledProgram] = WeakSet()
        self._queue: WeakSet[CompiledProgram] = WeakSet()
        """programs of the same loop that matter, not measured yet"""
        self._seen: WeakKeyDictionary[CompiledProgram, _Seen] = WeakKeyDictionary()
        self._loop_calls: WeakKeyDictionary[CompiledProgram, int] = WeakKeyDictionary()
        """calls of each program while the first was measured, and all were seen"""
        self._late: WeakKeyDictionary[CompiledProgram, float] = WeakKeyDictionary()
        """the shares of measured programs that came later, while they were seen"""
        self._lock = threading.RLock()

    # What happens in the job.

    def compiled(self, program: CompiledProgram) -> None:
        with self._lock:
            self._compiled_s = self._clock()
            for seen in self._seen.values():
                seen.recent_calls = seen.recent_samples = 0

    def is_timed(self, program: CompiledProgram) -> bool:
        """Whether the next call of a program is to be waited for."""
        with self._lock:
            seen = self._of(program)
            if not seen.calls or seen.samples >= MOST_SAMPLES:
                return False
            taken = seen.recent_samples if self._active is None else seen.samples
            return taken < SAMPLES

    def called(self, program: CompiledProgram, seconds: float | None = None) -> None:
        """A program was called, and took so long on its devices, if it was timed."""
        with self._lock:
            seen = self._of(program)
            seen.calls += 1
            seen.recent_calls += 1
            seen.loop_calls += self._chosen_s > 0
            self._calls += 1
            seen.last_s, seen.last_call = self._clock(), self._calls
            seen.first_s = seen.first_s or seen.last_s
            seen.is_aside = threading.current_thread() is not threading.main_thread()
            self._has_main_called |= not seen.is_aside
            if seconds is not None:
                seen.times_s.append(seconds)
                seen.samples += 1
                seen.recent_samples += 1

    # What to measure.

    def is_next(self, program: CompiledProgram) -> bool:
        """Whether a program is to be measured from now on."""
        with self._lock:
            seen = self._of(program)
            if program in self._measured or program is self._active:
                return False
            if seen.recent_calls < self.start:
                return False
            if self._functions:
                return self._active is None and function_name(seen.name) in self._functions
            if self._active is not None:
                active = self._of(self._active)
                return self._is_hot(seen) and seen.recent_s > TAKES_OVER * active.recent_s
            if not self._measured:
                return self._is_hot(seen)
            return program in self._queue or self._matters_late(seen)

    def begin(self, program: CompiledProgram) -> None:
        """A program is being measured; one that was is no longer."""
        with self._lock:
            has_taken_over = self._active is not None and not self._measured
            self._active = program
            self._queue.discard(program)
            if has_taken_over or not self._chosen_s:
                self._chosen_s = self._clock()
                for seen in self._seen.values():
                    seen.loop_calls = 0

    def end(self, program: CompiledProgram) -> None:
        """A program is measured; those of the same loop that matter are next."""
        with self._lock:
            self._measured.add(program)
            if self._is_late(program):
                self._late[program] = self._own_share(self._of(program))
            if program is not self._active:
                return
            self._active = None
            if not self._loop_calls:
                # From here on the program runs at full speed, unseen.
                self._loop_calls.update({p: seen.loop_calls for p, seen in self._seen.items()})
            for other, seen in self._seen.items():
                is_new = other not in self._measured and not other.is_settled
                calls = self._loop_calls.get(other, 0)
                if is_new and calls >= self.start and self._share(seen) >= MATTERS:
                    self._queue.add(other)

    @property
    def quiet_s(self) -> float:
        """How long no program was compiled."""
        return self._clock() - self._compiled_s

    @property
    def has_more(self) -> bool:
        """Whether programs wait to be measured that the job is known to call."""
        with self._lock:
            if not self._functions:
                return bool(self._queue)
            measured = {function_name(program.name) for program in self._measured}
            return any(
                seen.loop_calls and function_name(seen.name) in self._functions
                for seen in self._seen.values()
                if function_name(seen.name) not in measured
            )

    @property
    def has_called_chosen(self) -> bool:
        """Whether the job called a function that the user chose."""
        with self._lock:
            return any(function_name(seen.name) in self._functions for seen in self._seen.values())

    def is_negligible(self, program: CompiledProgram) -> bool:
        """Whether a program may run at full speed from now on, unwatched."""
        with self._lock:
            seen = self._of(program)
            if program is self._active or program in self._queue or self._functions:
                return False
            if not self._chosen_s or seen.loop_calls < self.start:
                return False
            if self._active is None:
                return seen.loop_calls >= MOST_WATCHED or self._share(seen) < NEGLIGIBLE
            return seen.recent_calls >= self.start and self._share(seen) < NEGLIGIBLE

    def share(self, program: CompiledProgram) -> float | None:
        """The part of the devices' time that a program takes; None where it was not timed."""
        with self._lock:
            seen = self._of(program)
            if not seen.times_s:
                return None
            if self._is_late(program):
                return self._late.get(program, self._own_share(seen))
            # A loop that came later and fills the time leaves the first one only the rest.
            later = max(self._late.values(), default=0.0)
            return min(self._share(seen), 1 - later) if later > FILLS else self._share(seen)

    def calls_per(self, program: CompiledProgram, other: CompiledProgram) -> float | None:
        """Calls of a program for each call of another, in the loop that they share."""
        with self._lock:
            own, others = self._loop_calls.get(program), self._loop_calls.get(other)
            return own / others if own and others else None

    def busiest(self) -> tuple[str, int] | None:
        """The program that took most time, and how often it ran; for messages."""
        with self._lock:
            called = [seen for seen in self._seen.values() if seen.calls]
            found = max(called, key=lambda s: (s.is_work, s.each_s * s.calls), default=None)
            if found is None:
                return None
            return found.name, sum(s.calls for s in called if s.name == found.name)

    def names(self) -> list[str]:
        """All functions that ran, those that took most time first; for messages."""
        with self._lock:
            ran = sorted(self._seen.values(), key=lambda s: (s.is_work, s.calls), reverse=True)
            return list(dict.fromkeys(function_name(seen.name) for seen in ran if seen.calls))

    def _of(self, program: CompiledProgram) -> _Seen:
        found = self._seen.get(program)
        if found is None:
            found = self._seen[program] = _Seen(program.name, is_work(program))
        return found

    def _is_hot(self, seen: _Seen) -> bool:
        if self._prepares_data(seen) or not (seen.is_work or self._fills_the_loop(seen)):
            return False
        return not any(
            self._goes_before(other, seen)
            for program, other in self._seen.items()
            if other is not seen and program not in self._measured
        )

    def _prepares_data(self, seen: _Seen) -> bool:
        """Whether it is called beside the training, maybe far ahead of it."""
        return seen.is_aside and not seen.is_work and self._has_main_called

    def _fills_the_loop(self, seen: _Seen) -> bool:
        """Whether the job does little else, for long: data and weights are prepared so, too."""
        window_s = self._clock() - self._compiled_s
        is_busy = seen.recent_s >= FILLS * window_s
        return is_busy and seen.recent_calls >= PATIENCE * self.start

    def _goes_before(self, other: _Seen, seen: _Seen) -> bool:
        """Whether another program that still runs takes more time."""
        if other.recent_s <= seen.recent_s or self._prepares_data(other):
            return False
        if other.recent_calls == 1 and seen.recent_calls >= 2 * self.start:
            return False  # it ran once
        window_s = self._clock() - self._compiled_s
        is_recent = other.last_s >= self._compiled_s + window_s / 2
        return is_recent and self._calls - other.last_call < PATIENCE * self.start

    def _share(self, seen: _Seen) -> float:
        """The part of the devices' time in the loop."""
        counts = self._loop_calls
        times_s = {
            id(one): one.each_s * (counts.get(program, 0) if counts else one.loop_calls)
            for program, one in self._seen.items()
        }
        total_s = sum(times_s.values())
        return times_s[id(seen)] / total_s if total_s else 0.0

    def _is_late(self, program: CompiledProgram) -> bool:
        """Whether a program did not run yet while the first was measured."""
        return bool(self._loop_calls) and not self._loop_calls.get(program)

    def _own_share(self, seen: _Seen) -> float:
        """The part of the time since a program's first call that it took."""
        return min(seen.each_s * seen.calls / max(self._clock() - seen.first_s, 1e-9), 1.0)

    def _matters_late(self, seen: _Seen) -> bool:
        """Whether a program that came later takes its share of the time since the choice.

        The programs measured before run at full speed, unseen: only the clock tells their part.
        """
        return seen.loop_s >= MATTERS * (self._clock() - self._chosen_s)


def is_work(program: CompiledProgram) -> bool:
    return any(name in program.stablehlo for name in WORK)


def function_name(program: str) -> str:
    """`step` for JAX's `jit_step` or `pmap_step`."""
    for prefix in ("jit_", "pmap_"):
        if program.startswith(prefix):
            return program.removeprefix(prefix).strip("_") or program
    return program.strip("_") or program
