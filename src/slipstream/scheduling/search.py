"""The best order of one computation that can be found in some time.

XLA's own order                       never worse than it
list scheduling                       any size, in no time
the solver (CP-SAT)                   all of a computation, or window by window if it is large
local search                          moves on the best of these, judged by the simulator
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from slipstream.scheduling import solver
from slipstream.scheduling.list_scheduling import list_schedule, shaken
from slipstream.scheduling.memory import BufferUse, peak_bytes
from slipstream.scheduling.moves import Moves
from slipstream.scheduling.sequence import apart, sequence_of, short_flights
from slipstream.scheduling.tasks import START, Resource, Tasks
from slipstream.scheduling.trial import Trial

WHOLE = 400
"""most kernels and starts that the solver takes at once"""
WINDOW, STRIDE = 160, 100
SHAKES = 24
SHAKE = 0.3


@dataclass(frozen=True)
class Found:
    """A sequence of one computation's tasks."""

    sequence: tuple[int, ...]
    ns: int
    bytes: int
    by: str
    """what found it: `XLA`, `XLA with costs`, `list scheduling`, `solver`, `local search`"""


@dataclass
class ComputationSearch:
    """Searches one computation; `seconds` is for the solver and the local search together."""

    tasks: Tasks
    trial: Trial
    buffers: Sequence[BufferUse]
    most_bytes: int
    bound_ns: int
    at_once: int
    seconds: float
    known: Sequence[Sequence[int]] = ()
    """other orders of the same tasks, such as XLA's with costs"""
    seed: int = 1
    tried: int = 0
    best: Found = field(init=False)

    def __post_init__(self) -> None:
        self._ends = time.monotonic() + self.seconds
        self.best = self._found(range(len(self.tasks)), "XLA")

    def run(self) -> Found:
        """Search until the bound is reached or the time is over."""
        for sequence in self.known:
            self._try(sequence, "XLA with costs")
        if START not in self.tasks.kinds:
            return self.best  # nothing is asynchronous: every order takes as long
        if self.best.bytes > self.most_bytes:
            for sequence in short_flights(self.tasks):
                self._try(sequence, "list scheduling")
        begins = list_schedule(self.tasks)
        self._try_times(begins, "list scheduling")
        if solver.is_installed():
            self._solve(begins)
        else:
            for number in range(SHAKES if self._left() > 0 else 0):
                urgency = shaken(self.tasks, SHAKE, number)
                self._try_times(list_schedule(self.tasks, urgency), "list scheduling")
        self._move()
        return self.best

    # Candidates.

    def _found(self, sequence: Sequence[int], by: str) -> Found:
        self.tried += 1
        bytes_ = peak_bytes(self.buffers, sequence)
        return Found(tuple(sequence), self.trial.span_ns(sequence), bytes_, by)

    def _try(self, sequence: Sequence[int], by: str) -> bool:
        """Keep a sequence if it is faster and fits; whether it fits.

        Until one fits, the smallest is kept.
        """
        one = self._found(sequence, by)
        over, best_over = (max(it.bytes - self.most_bytes, 0) for it in (one, self.best))
        if (over, one.ns) < (best_over, self.best.ns):
            self.best = one
        return not over

    def _try_times(self, begins: Mapping[int, int], by: str) -> bool:
        """Try a schedule with starts early and late, and if neither fits, with early dones too."""
        fits = [self._try(self._listed(begins, early, frees=False), by) for early in (True, False)]
        return any(fits) or self._try(self._listed(begins, early=False, frees=True), by)

    def _listed(self, begins: Mapping[int, int], early: bool, frees: bool) -> list[int]:
        return sequence_of(self.tasks, begins, early=early, frees=frees, at_once=self.at_once)

    def _left(self) -> float:
        return self._ends - time.monotonic()

    # The solver.

    def _solve(self, begins: Mapping[int, int]) -> None:
        if len(self.tasks.heavy) > WHOLE:
            self._solve_windows(begins)
            return
        found = solver.solve(self.tasks, max(self._left() / 2, 0.5), begins)
        if found is None or self._try_times(found.begins, "solver") or self._left() <= 0:
            return
        memory = (self.buffers, self.most_bytes)
        less = solver.solve(self.tasks, max(self._left() / 2, 0.5), begins, memory=memory)
        if less is not None:
            self._try_times(less.begins, "solver")

    def _solve_windows(self, begins: Mapping[int, int]) -> None:
        """Solve one window after the other, each with what the windows before it became."""
        order = sorted(begins, key=lambda task: (begins[task], task))
        times = retimed(self.tasks, order)
        for first in range(0, len(order), STRIDE):
            share = self._left() / 2 / (1 + (len(order) - first) // STRIDE)
            if share <= 0:
                break
            part = order[first : first + WINDOW]
            window = _window(self.tasks, order, times, first, part)
            found = solver.solve(self.tasks, share, _relative(times, part), window)
            if found is None:
                continue
            place = {task: number for number, task in enumerate(part)}
            part = sorted(part, key=lambda task: (found.begins[task], place[task]))
            changed = [*order[:first], *part, *order[first + len(part) :]]
            again = retimed(self.tasks, changed)
            if _end(self.tasks, again) <= _end(self.tasks, times):
                order, times = changed, again
        self._try_times(times, "solver")

    # Local search.

    def _move(self) -> None:
        if self._left() <= 0 or self.best.ns <= self.bound_ns:
            return
        moves = Moves(self.tasks, self.trial, self.best.sequence, self.seed)
        moves.improved(self.best.ns, self.bound_ns, self._left(), self._keep)
        self.tried += moves.tried

    def _keep(self, sequence: Sequence[int]) -> tuple[Sequence[int], int] | None:
        """Keep what is faster, fits, and stays so with room for synchronous collectives."""
        before = self.best.ns
        self._try(apart(self.tasks, sequence, self.at_once), "local search")
        return (self.best.sequence, self.best.ns) if self.best.ns < before else None


def retimed(tasks: Tasks, order: Sequence[int]) -> dict[int, int]:
    """When tasks begin if each resource takes them in this order."""
    free: dict[Resource, int] = defaultdict(int)
    found: dict[int, int] = {}
    for task in order:
        ready = max((found[one] + tasks.ns[one] for one in tasks.after[task]), default=0)
        begin = max(ready, *(free[one] for one in tasks.resources[task]), 0)
        found[task] = begin
        for one in tasks.resources[task]:
            free[one] = begin + tasks.ns[task]
    return found


def _end(tasks: Tasks, times: Mapping[int, int]) -> int:
    return max((begin + tasks.ns[task] for task, begin in times.items()), default=0)


def _relative(times: Mapping[int, int], part: Sequence[int]) -> dict[int, int]:
    origin = min(times[task] for task in part)
    return {task: times[task] - origin for task in part}


def _window(
    tasks: Tasks,
    order: Sequence[int],
    times: Mapping[int, int],
    first: int,
    part: Sequence[int],
) -> solver.Window:
    origin = min(times[task] for task in part)
    inside = set(part)
    release: dict[int, int] = {}
    tails: dict[int, int] = {}
    behind: dict[Resource, int] = defaultdict(int)
    for task in order[first + len(part) :]:
        for one in tasks.resources[task]:
            behind[one] += tasks.ns[task]
    for task in part:
        ends = (times[one] + tasks.ns[one] for one in tasks.after[task] if one not in inside)
        release[task] = max(max(ends, default=0) - origin, 0)
        users = (tasks.tails[one] for one in tasks.before[task] if one not in inside)
        later = (behind[one] for one in tasks.resources[task])
        tails[task] = max(max(users, default=0), *later, 0)
    free: dict[Resource, int] = {}
    for task in order[:first]:
        for one in tasks.resources[task]:
            free[one] = max(free.get(one, 0), times[task] + tasks.ns[task] - origin)
    return solver.Window(part, release, tails, {one: ns for one, ns in free.items() if ns > 0})
