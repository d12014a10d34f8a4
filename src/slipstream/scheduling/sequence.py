"""From the times of tasks to the sequence that XLA launches.

One thread launches everything in sequence, and an asynchronous operation begins once the kernels
that were launched before it have ended. So a start is listed as early as it can be, and waits on
its stream for those before it; a done is listed right before what needs it:

    times       kernel a ███████████       sequence    start g
                kernel b            ████               kernel a
                gather g      ═══════                  kernel b
                kernel c               ███             done g
                                                       kernel c

XLA makes one synchronous collective of a start and a done between which no kernel is launched, and
runs it on the compute stream. There it would run beside collectives that are still in flight, so
those that were started since the last kernel are started behind it, and the others are waited for
first, down to one less than may run at once.

Early starts cost memory: what a gather writes is allocated at its start. Without `early`, starts
are listed when they begin; with `frees`, dones once they have ended, which frees what was read.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np

from slipstream.scheduling.synchronous import Stretches
from slipstream.scheduling.tasks import KERNEL, LIGHT, START, Tasks, is_topological


def sequence_of(
    tasks: Tasks,
    begins: Mapping[int, int],
    *,
    early: bool = True,
    frees: bool = False,
    at_once: int = 1,
) -> list[int]:
    """All tasks, kernels and starts as they begin; ties go by XLA's order.

    `at_once` is how many collectives may run at the same time.
    """
    return apart(tasks, _Sequence(tasks, begins, early, frees).listed(), at_once)


def apart(tasks: Tasks, sequence: Sequence[int], at_once: int) -> list[int]:
    """The same sequence, with room for collectives that XLA makes synchronous.

    Where control dependencies don't leave that room, the sequence stays as it is.
    """
    found = _Apart(tasks, sequence, at_once).listed()
    return found if is_topological(tasks, found) else list(sequence)


def short_flights(tasks: Tasks) -> list[list[int]]:
    """XLA's order with operations in flight for no time: least memory for what they read or write.

    Once each start goes to its done, once each done to its start, where dependencies allow.
    """
    done_of = {start: done for done, start in tasks.start_of.items()}
    late: list[int] = []
    soon: list[int] = []
    for task in range(len(tasks)):
        start, done = tasks.start_of.get(task), done_of.get(task)
        if start is not None:
            late += (start, task)
        elif done is not None:
            soon += (task, done)
        else:
            late.append(task)
            soon.append(task)
    return [one for one in (late, soon) if is_topological(tasks, one)]


class _Apart:
    def __init__(self, tasks: Tasks, sequence: Sequence[int], at_once: int) -> None:
        self.tasks = tasks
        self.sequence = sequence
        self.at_once = at_once
        self.done_of = {start: done for done, start in tasks.start_of.items()}
        starts, _ = Stretches(tasks).pairs(np.array(sequence, np.int64))
        self.together = {sequence[place] for place in starts}
        self.flying: dict[int, None] = {}
        """asynchronous collectives between start and done, the oldest first"""
        self.fresh: list[int] = []
        """those that were started since the last kernel"""
        self.found: list[int] = []
        self.since = 0
        """how many were listed with the last kernel"""
        self.waited: set[int] = set()
        """dones that were listed before their turn"""

    def listed(self) -> list[int]:
        for task in self.sequence:
            start = self.tasks.start_of.get(task)
            if task in self.waited or task in self.together:
                continue
            if start is not None and start in self.together:
                self._list_pair(start, task)
                continue
            if task in self.tasks.collectives:
                self._begin(task)
                continue
            if start is not None:
                self.flying.pop(start, None)
            self.found.append(task)
            if self.tasks.kinds[task] == KERNEL:
                self.fresh.clear()
                self.since = len(self.found)
        return self.found

    def _begin(self, start: int) -> None:
        self.flying[start] = None
        self.fresh.append(start)
        self.found.append(start)

    def _list_pair(self, start: int, done: int) -> None:
        """What was started since the last kernel can begin after it; the rest is waited for."""
        held: list[int] = []
        while len(self.flying) >= self.at_once:
            if self.fresh and self._can_hold(self.fresh[-1]):
                last = self.fresh.pop()
                del self.found[self.found.index(last, self.since)]
                del self.flying[last]
                held.append(last)
            else:
                self._wait(next(iter(self.flying)))
        self.found += (start, done)
        for one in reversed(held):
            self._begin(one)

    def _can_hold(self, start: int) -> bool:
        """Whether nothing that is listed already needs it."""
        listed = islice(self.found, self.since, None)
        return not any(start in self.tasks.needs[one] for one in listed)

    def _wait(self, start: int) -> None:
        del self.flying[start]
        if start in self.fresh:
            self.fresh.remove(start)
        self.waited.add(self.done_of[start])
        self.found.append(self.done_of[start])


class _Sequence:
    def __init__(self, tasks: Tasks, begins: Mapping[int, int], early: bool, frees: bool) -> None:
        self.tasks = tasks
        self.begins = begins
        self.early = early
        self.frees = frees
        self.found: list[int] = []
        self.is_listed = bytearray(len(tasks))
        self.queues: dict[int, deque[int]] = defaultdict(deque)
        """starts that are not listed yet, by stream, in the order in which they begin"""
        self.order = sorted(tasks.heavy, key=self._turn)
        for task in self.order:
            if tasks.kinds[task] == START:
                self.queues[tasks.resources[task][0][1]].append(task)
        ends = ((begins[start] + tasks.ns[start], done) for done, start in tasks.start_of.items())
        self.ending = deque(sorted(ends))
        """dones, by the end of their operation"""

    def _turn(self, task: int) -> tuple[int, bool, int]:
        """A start that begins with a kernel comes before it, or it would wait for its end."""
        return self.begins[task], self.tasks.kinds[task] == KERNEL, task

    def listed(self) -> list[int]:
        parameters = [
            place
            for place, one in enumerate(self.tasks.computation.instructions)
            if one.parameter_number is not None
        ]
        for task in parameters:
            self._list(task)
        for task in self.order:
            if self.early:
                self._list_ready_starts()
            if self.is_listed[task]:
                continue
            if self.frees:
                self._list_ended(self.begins[task])
            if self.tasks.kinds[task] == KERNEL:
                self._list(task)
            else:
                self._list_up_to(task)
        for task in range(len(self.tasks)):
            self._list(task)
        return self.found

    def _list(self, task: int) -> None:
        """List a task after all that it needs."""
        stack = [task]
        while stack:
            one = stack[-1]
            if self.is_listed[one]:
                stack.pop()
                continue
            missing = [need for need in self.tasks.needs[one] if not self.is_listed[need]]
            if missing:
                stack += reversed(missing)
                continue
            self.is_listed[one] = True
            self.found.append(one)
            stack.pop()

    def _list_up_to(self, start: int) -> None:
        """Operations of one stream begin in the order in which they are listed."""
        queue = self.queues[self.tasks.resources[start][0][1]]
        while queue:
            first = queue.popleft()
            self._list(first)
            if first == start:
                return

    def _list_ready_starts(self) -> None:
        for queue in self.queues.values():
            while queue and self._is_ready(queue[0]):
                self._list(queue.popleft())

    def _is_ready(self, task: int) -> bool:
        """Whether only tasks without work are missing before it: no kernel, and no wait."""
        stack = [need for need in self.tasks.needs[task] if not self.is_listed[need]]
        while stack:
            one = stack.pop()
            if self.tasks.kinds[one] != LIGHT:
                return False
            stack += [need for need in self.tasks.needs[one] if not self.is_listed[need]]
        return True

    def _list_ended(self, now: int) -> None:
        while self.ending and self.ending[0][0] <= now:
            _, done = self.ending.popleft()
            if self.is_listed[self.tasks.start_of[done]]:
                self._list(done)
