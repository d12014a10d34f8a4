"""Local search: one kernel or start at a time goes to another place, with what has to go with it.

    moved earlier    what it needs and takes no time comes along: tuples, bitcasts, waits
    moved later      so does what needs it and takes no time; waits for its operands come, too

The simulator judges every move, and runs again only the window that it changes. Threshold
accepting: at first a little worse will do, towards the end nothing but better.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence

from slipstream.scheduling.tasks import DONE, KERNEL, LIGHT, START, Tasks
from slipstream.scheduling.trial import Trial

WORSE = 0.0003
"""of the span: how much worse a move may be at first"""
STARTS = 0.6
"""how often a start is moved rather than a kernel: they decide what overlaps"""
NEAR = 24
"""most places of a short move, which half of them are"""
FAR = 2000
"""most places of any other"""
LEAST_MOVES, MOVES = 1000, 200
"""in all, and for each kernel and start"""
DRAWS = 50
"""drawn for each that is tried, at most: dependencies may leave nothing to move"""
TOGETHER = (LIGHT, DONE)
Window = tuple[int, list[int]]
"""the first place that changes, and the tasks from there on"""
Keep = Callable[[Sequence[int]], tuple[Sequence[int], int] | None]
"""what becomes of a faster sequence, and how long it takes; None if it can't be kept"""


class Moves:
    """Moves from one sequence on."""

    def __init__(self, tasks: Tasks, trial: Trial, sequence: Sequence[int], seed: int) -> None:
        self.tasks = tasks
        self.trial = trial
        self.drawn = random.Random(seed)
        self.order = list(sequence)
        self.place = _places(self.order, len(tasks))
        self.users: list[list[int]] = [[] for _ in range(len(tasks))]
        for task, needed in enumerate(tasks.needs):
            for one in needed:
                self.users[one].append(task)
        self.starts = [task for task in tasks.heavy if tasks.kinds[task] == START]
        self.kernels = [task for task in tasks.heavy if tasks.kinds[task] == KERNEL]
        self.tried = 0

    def improved(self, ns: int, least_ns: int, seconds: float, keep: Keep) -> None:
        """Search until the time is over or the bound is reached; `keep` gets what is better."""
        began = time.monotonic()
        most = LEAST_MOVES + MOVES * (len(self.starts) + len(self.kernels))
        current = best = ns
        done = 0.0
        draws = 0
        self.trial.know(self.order)
        while best > least_ns and done < 1.0:
            draws += 1
            spent = (time.monotonic() - began) / max(seconds, 1e-9)
            done = max(self.tried / most, draws / (DRAWS * most), spent)
            moved = self.drawn_move()
            if moved is None:
                continue
            self.tried += 1
            found = self.trial.span_of_window_ns(*moved)
            allowed = best * (1 + WORSE * max(1.0 - done, 0.0))
            if found > max(current, allowed):
                continue
            if found < best:
                kept = keep(self.after(*moved))
                if kept is None:
                    continue
                self._start_from(kept[0])
                current = best = kept[1]
            else:
                self.trial.keep_window()
                self.go(*moved)
                current = found

    def _start_from(self, order: Sequence[int]) -> None:
        self.order = list(order)
        self.place = _places(self.order, len(self.tasks))
        self.trial.know(self.order)

    def after(self, first: int, window: Sequence[int]) -> list[int]:
        """The order with other tasks from place `first` on."""
        return [*self.order[:first], *window, *self.order[first + len(window) :]]

    def go(self, first: int, window: Sequence[int]) -> None:
        """Take that for the order."""
        self.order[first : first + len(window)] = window
        for place, task in enumerate(window, first):
            self.place[task] = place

    def drawn_move(self) -> Window | None:
        """One random move; None if what was drawn can't move there."""
        some = self.starts if self.drawn.random() < STARTS or not self.kernels else self.kernels
        task = self.drawn.choice(some)
        here = self.place[task]
        most = NEAR if self.drawn.random() < 0.5 else min(FAR, len(self.order))
        target = here + self.drawn.randint(-most, most)
        if target == here or not 0 <= target < len(self.order):
            return None
        return self._earlier(task, target) if target < here else self._later(task, target)

    def _earlier(self, task: int, target: int) -> Window | None:
        together = self._with(task, target, self.tasks.needs, TOGETHER)
        if together is None:
            return None
        rest = [one for one in self.order[target : self.place[task] + 1] if one not in together]
        return target, [*sorted(together, key=self.place.__getitem__), *rest]

    def _later(self, task: int, target: int) -> Window | None:
        together = self._with(task, target, self.users, (LIGHT,))
        if together is None:
            return None
        for one in self.tasks.needs[task]:  # a wait goes on until it is needed
            if self.tasks.kinds[one] == DONE and set(self.users[one]) <= together:
                together.add(one)
        first = min(self.place[one] for one in together)
        rest = [one for one in self.order[first : target + 1] if one not in together]
        return first, [*rest, *sorted(together, key=self.place.__getitem__)]

    def _with(
        self, task: int, target: int, near: Sequence[Iterable[int]], kinds: tuple[int, ...]
    ) -> set[int] | None:
        """A task and all that has to move with it; None if something else is in its way."""
        is_later = target > self.place[task]
        together = {task}
        stack = [task]
        while stack:
            for one in near[stack.pop()]:
                at = self.place[one]
                if one in together or (at > target if is_later else at < target):
                    continue
                if self.tasks.kinds[one] not in kinds:
                    return None
                together.add(one)
                stack.append(one)
        return together


def _places(order: Sequence[int], count: int) -> list[int]:
    found = [0] * count
    for place, task in enumerate(order):
        found[task] = place
    return found
