"""What hiding collectives costs at least: the kernels beside them are slower.

A collective can be hidden beside kernels that it doesn't depend on, and that don't depend on it;
each such kernel loses a share of its speed meanwhile. Which kernels hide which collectives at the
least loss is a flow of minimum cost:

    gather 1 ──┬── kernel a    its time beside collectives, at most
               ├── kernel b
    gather 2 ──┼── kernel c
               ├── exposed     costs its own time
               ├── gaps        between kernels: free
               └── before      while no kernel of the set can run: free

The set are the kernels that can't begin before some time. Its time, that time, and the least loss
are a bound: whatever order they run in, a collective is hidden, exposed, or over before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from slipstream.scheduling import solver
from slipstream.scheduling.tasks import KERNEL, Tasks
from slipstream.simulate.clock import MOST_LOST
from slipstream.simulate.contention import Contention

MOST_TASKS = 3000
"""kernels and starts of a computation for which this is computed"""
NS_PER_UNIT = 100
PARTS = 10_000
"""resolution of losses"""


def least_with_hiding_ns(tasks: Tasks, at_once: int) -> int:
    """A bound that counts what collectives cost the kernels beside them; 0 if there is none.

    `at_once` is how many collectives XLA runs at the same time.
    """
    if not tasks.collectives or len(tasks.heavy) > MOST_TASKS or not solver.is_installed():
        return 0
    head, kernels = _busiest(tasks)
    if not kernels:
        return 0
    busy = sum(tasks.ns[task] for task in kernels)
    return head + busy + _Flow(tasks, kernels, head, at_once).least_ns()


def _busiest(tasks: Tasks) -> tuple[int, list[int]]:
    """The time before which the kernels can't begin that take longest with it, and these."""
    by_head = sorted(
        (task for task in tasks.heavy if tasks.kinds[task] == KERNEL),
        key=lambda task: tasks.heads[task],
    )
    best, first, behind = 0, len(by_head), 0
    for place in range(len(by_head) - 1, -1, -1):
        behind += tasks.ns[by_head[place]]
        if tasks.heads[by_head[place]] + behind >= best:
            best, first = tasks.heads[by_head[place]] + behind, place
    chosen = by_head[first:]
    return (tasks.heads[chosen[0]] if chosen else 0), chosen


class _Flow:
    def __init__(self, tasks: Tasks, kernels: Sequence[int], head: int, at_once: int) -> None:
        from ortools.graph.python import min_cost_flow

        self.tasks, self.at_once = tasks, at_once
        self.flow: Any = min_cost_flow.SimpleMinCostFlow()
        collectives = sorted(tasks.collectives)
        self.source, self.sink, self.before, self.gaps = range(4)
        node = {task: 4 + place for place, task in enumerate((*collectives, *kernels))}
        needed = _all_before(tasks)
        total = 0
        for one in collectives:
            units = tasks.ns[one] // NS_PER_UNIT
            total += units
            self._arc(self.source, node[one], units, 0.0)
            self._arc(node[one], self.sink, units, 1 / (at_once + 1))
            self._arc(node[one], self.before, units, 0.0)
            self._arc(node[one], self.gaps, units, 0.0)
            for kernel in kernels:
                if not (needed[one] >> kernel & 1 or needed[kernel] >> one & 1):
                    self._arc(node[one], node[kernel], units, self._lost(kernel, one))
        for kernel in kernels:
            self._arc(node[kernel], self.sink, self._room(kernel, collectives), 0.0)
        self._arc(self.before, self.sink, (at_once + 1) * head // NS_PER_UNIT + 1, 0.0)
        gaps = sum(tasks.gaps[kernel] for kernel in kernels)
        self._arc(self.gaps, self.sink, at_once * gaps // NS_PER_UNIT + 1, 0.0)
        self.flow.set_node_supply(self.source, total)
        self.flow.set_node_supply(self.sink, -total)

    def least_ns(self) -> int:
        status = self.flow.solve()
        if status != self.flow.OPTIMAL:
            return 0
        return int(self.flow.optimal_cost() * NS_PER_UNIT // PARTS)

    def _arc(self, start: int, end: int, units: int, cost: float) -> None:
        if units:
            whole = int(cost * PARTS)
            self.flow.add_arc_with_capacity_and_unit_cost(start, end, units, whole)

    def _lost(self, kernel: int, collective: int) -> float:
        """Of a kernel's speed, for one of the collectives beside it, at least."""
        kept, taken = self.tasks.contentions[kernel], self.tasks.contentions[collective]
        lost = kept.loses / self.at_once + _taken(kept, taken.cores, taken.memory)
        return min(lost, MOST_LOST / self.at_once)

    def _room(self, kernel: int, collectives: Sequence[int]) -> int:
        """How long collectives can run beside a kernel, all together: it is slower meanwhile."""
        kept = self.tasks.contentions[kernel]
        taken = [self.tasks.contentions[one] for one in collectives]
        cores = self.at_once * max(one.cores for one in taken)
        memory = self.at_once * max(one.memory for one in taken)
        lost = min(kept.loses + _taken(kept, cores, memory), MOST_LOST)
        ns = self.tasks.ns[kernel] - self.tasks.gaps[kernel]
        return int(self.at_once * ns / (1 - lost) / NS_PER_UNIT) + 1


def _taken(kept: Contention, cores: float, memory: float) -> float:
    return min(kept.loses_by_cores * cores + kept.loses_by_memory * memory, MOST_LOST)


def _all_before(tasks: Tasks) -> Mapping[int, int]:
    """All kernels and starts that end before each can begin, as the bits of a number."""
    found: dict[int, int] = {}
    for task in tasks.heavy:
        bits = 0
        for one in tasks.ended_after[task]:
            bits |= found[one] | 1 << one
        found[task] = bits
    return found
