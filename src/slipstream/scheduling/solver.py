"""Exact schedules by OR-Tools' CP-SAT: tasks as intervals, resources that do one thing at a time.

It knows neither that kernels and collectives slow each other nor what launching costs, so the
simulator has the last word. Its proven bound holds for every order: those effects only add to it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slipstream.scheduling.memory import BufferUse
from slipstream.scheduling.tasks import Resource, Tasks

NAME = "ortools"
INSTALL = "pip install 'slipstream[schedule]'"
NS_PER_UNIT = 100
"""resolution of the solver's clock"""
MEMORY_PARTS = 4096
"""resolution of the solver's memory: this many parts of the limit"""


@dataclass(frozen=True)
class Solution:
    """When tasks begin, in nanoseconds, and the least that any order takes."""

    begins: Mapping[int, int]
    ns: int
    bound_ns: int
    is_optimal: bool


@dataclass(frozen=True)
class Window:
    """A part of a computation; what is outside keeps its order."""

    tasks: Sequence[int]
    release_ns: Mapping[int, int]
    """the earliest time of a task, relative to the window: what it needs from before"""
    tail_ns: Mapping[int, int]
    """how long the step goes on, at least, after a task has ended"""
    free_ns: Mapping[Resource, int]
    """until when a resource is busy with what began before"""


def is_installed() -> bool:
    from importlib.util import find_spec

    return find_spec(NAME) is not None


def solve(
    tasks: Tasks,
    seconds: float,
    guess: Mapping[int, int] | None = None,
    window: Window | None = None,
    memory: tuple[Sequence[BufferUse], int] | None = None,
    workers: int = 2,
) -> Solution | None:
    """The shortest schedule that was found in this time; None without any.

    `memory` are the buffers of the computation and the bytes that they may take together.
    """
    return _Model(tasks, window or _whole(tasks), memory).solved(seconds, guess or {}, workers)


def _whole(tasks: Tasks) -> Window:
    return Window(tasks.heavy, {}, {}, {})


class _Model:
    def __init__(
        self, tasks: Tasks, window: Window, memory: tuple[Sequence[BufferUse], int] | None
    ) -> None:
        from ortools.sat.python import cp_model

        self.tasks, self.window = tasks, window
        self.model: Any = cp_model.CpModel()
        self.chosen = set(window.tasks)
        self.lengths = {task: _units(tasks.ns[task]) for task in window.tasks}
        latest = max(window.release_ns.values(), default=0)
        latest = max(latest, *window.free_ns.values(), 0) if window.free_ns else latest
        self.horizon = sum(self.lengths.values()) + _units(latest) + 1
        self.begin: dict[int, Any] = {}
        used: dict[Resource, list[Any]] = defaultdict(list)
        for task in window.tasks:
            first = _units(window.release_ns.get(task, 0))
            self.begin[task] = self.model.new_int_var(first, self.horizon, "")
            length = self.lengths[task]
            interval = self.model.new_fixed_size_interval_var(self.begin[task], length, "")
            for one in tasks.resources[task] if length else ():
                used[one].append(interval)
        self._order()
        self._share(used)
        self._end()
        if memory is not None:
            self._remember(*memory)

    def _order(self) -> None:
        for task in self.window.tasks:
            for needed in self.tasks.after[task]:
                if needed in self.chosen:
                    ends = self.begin[needed] + self.lengths[needed]
                    self.model.add(self.begin[task] >= ends)

    def _share(self, used: Mapping[Resource, list[Any]]) -> None:
        for resource, intervals in used.items():
            busy = _units(self.window.free_ns.get(resource, 0))
            if busy:
                intervals.append(self.model.new_fixed_size_interval_var(0, busy, ""))
            self.model.add_no_overlap(intervals)

    def _end(self) -> None:
        tails = {task: _units(self.window.tail_ns.get(task, 0)) for task in self.window.tasks}
        most = self.horizon + max(tails.values(), default=0)
        self.end = self.model.new_int_var(0, most, "")
        for task in self.window.tasks:
            length = self.lengths[task] + tails[task]
            self.model.add(self.end >= self.begin[task] + length)
        self.model.minimize(self.end)

    def _remember(self, buffers: Sequence[BufferUse], limit: int) -> None:
        """What is alive at a time fits: from the first task that touches it to the last's end."""
        unit = max(1, limit // MEMORY_PARTS)
        alive, sizes = [], []
        for buffer in buffers:
            touching = [task for task in buffer.tasks if task in self.chosen]
            size = -(-buffer.bytes // unit)
            if not touching or not size:
                continue
            born, died = (self.model.new_int_var(0, self.horizon, "") for _ in range(2))
            length = self.model.new_int_var(0, self.horizon, "")
            for task in touching:
                self.model.add(born <= self.begin[task])
                self.model.add(died >= self.begin[task] + self.lengths[task])
            alive.append(self.model.new_interval_var(born, length, died, ""))
            sizes.append(size)
        if alive:
            self.model.add_cumulative(alive, sizes, limit // unit)

    def solved(self, seconds: float, guess: Mapping[int, int], workers: int) -> Solution | None:
        from ortools.sat.python import cp_model

        for task, ns in guess.items():
            if task in self.begin:
                self.model.add_hint(self.begin[task], ns // NS_PER_UNIT)
        solver: Any = cp_model.CpSolver()
        solver.parameters.max_time_in_seconds = seconds
        solver.parameters.num_workers = workers
        solver.parameters.random_seed = 1
        status = solver.solve(self.model)
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return None
        begins = {task: solver.value(found) * NS_PER_UNIT for task, found in self.begin.items()}
        return Solution(
            begins,
            round(solver.objective_value) * NS_PER_UNIT,
            round(solver.best_objective_bound) * NS_PER_UNIT,
            status == cp_model.OPTIMAL,
        )


def _units(ns: int) -> int:
    """Rounded down, so that the bound holds."""
    return ns // NS_PER_UNIT
