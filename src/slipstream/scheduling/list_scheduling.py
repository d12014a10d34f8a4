"""List scheduling: whenever a stream is free, it takes the most urgent task that is ready.

Urgent is what has the longest chain behind it, communication included. Fast, for computations of
any size, and the first guess of the solver.
"""

from __future__ import annotations

import heapq
import random
from collections import defaultdict
from collections.abc import Mapping

from slipstream.scheduling.tasks import Resource, Tasks


def list_schedule(tasks: Tasks, urgency: Mapping[int, float] | None = None) -> dict[int, int]:
    """When each kernel and start begins, in nanoseconds."""
    return _ListScheduling(tasks, urgency or tasks.tails).begins()


def shaken(tasks: Tasks, amount: float, seed: int) -> dict[int, float]:
    """The lengths of the chains, each changed at random by up to `amount` of it."""
    drawn = random.Random(seed)
    return {task: ns * (1 + amount * drawn.uniform(-1, 1)) for task, ns in tasks.tails.items()}


class _ListScheduling:
    def __init__(self, tasks: Tasks, urgency: Mapping[int, float]) -> None:
        self.tasks = tasks
        self.urgency = urgency
        self.missing = {task: len(needed) for task, needed in tasks.after.items()}
        self.free: dict[Resource, int] = defaultdict(int)
        """since when each resource is idle"""
        self.ready: dict[tuple[Resource, ...], list[tuple[float, int]]] = defaultdict(list)
        """tasks that could begin, the most urgent first, by what they occupy"""
        self.coming: list[tuple[int, int]] = []
        """ends of tasks that run"""

    def begins(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for task, count in self.missing.items():
            if not count:
                self._make_ready(task)
        now = 0
        while len(found) < len(self.missing):
            for used, waiting in self.ready.items():
                if waiting and all(self.free[one] <= now for one in used):
                    _, task = heapq.heappop(waiting)
                    found[task] = now
                    end = now + self.tasks.ns[task]
                    for one in used:
                        self.free[one] = end
                    heapq.heappush(self.coming, (end, task))
            now = self._next(now)
        return found

    def _next(self, now: int) -> int:
        """Move to the next end, and make what waited for it ready."""
        if not self.coming:
            return now
        now = self.coming[0][0]
        while self.coming and self.coming[0][0] <= now:
            _, ended = heapq.heappop(self.coming)
            for user in self.tasks.before[ended]:
                self.missing[user] -= 1
                if not self.missing[user]:
                    self._make_ready(user)
        return now

    def _make_ready(self, task: int) -> None:
        used = self.tasks.resources[task]
        heapq.heappush(self.ready[used], (-self.urgency[task], task))
