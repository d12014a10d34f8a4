"""The least that any order of a program takes.

Loops count as their turns, one after the other; a computation by one resource at a time:

Jackson's preemptive schedule: the tasks of one resource, each released after the longest chain
before it and followed by the longest chain behind it. Whenever one is released, the task with the
longest chain behind it runs. No order of all tasks ends before that.

    released   ▼g1        ▼g2 ▼g3
    stream     ████████   ██▒▒▒██        g3, more urgent, interrupts g2
    behind               ────────▶ the latest end plus its chain: the bound
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from slipstream.costs.table import CostTable
from slipstream.machines.machine import Estimate, Machine
from slipstream.profile.program import Computation, Instruction, Program
from slipstream.scheduling.computations import calls_of, from_inside, length_of
from slipstream.scheduling.hiding import least_with_hiding_ns
from slipstream.scheduling.tasks import KERNEL, PS_PER_NS, Resource, Tasks, tasks_of
from slipstream.scheduling.unavoidable import is_read, read_ns, with_least_gaps
from slipstream.simulate.costing import costing
from slipstream.simulate.engine import CLOCK_ERROR, graph_of
from slipstream.simulate.graphs import captured_kinds
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.power_cap import StepPower, executions_of, without_waits
from slipstream.simulate.streams import overlap_limit
from slipstream.simulate.task_graph import PS_PER_US, READ

CORRECTIONS = 3


def program_bound_us(
    program: Program,
    machine: Machine,
    costs: CostTable | None = None,
    source: Program | None = None,
) -> float:
    """The least that any order of a program takes on a machine.

    A step that waits less draws more power, so the bound is that at the clock which the power cap
    leaves to a step of this length. Simulated steps are only about at that clock.
    """
    if costs is not None or not machine.gpu.power_w:
        clocked = machine if costs is not None else machine.at(1.0)
        return _Bound(program, clocked, costing(program, clocked, costs, source)).least_us()
    share = without_waits(program, machine)
    draw = StepPower(program, machine, executions_of(program))
    bound_us = 0.0
    for _ in range(CORRECTIONS):
        clocked = machine.at(share)
        bound_us = _Bound(program, clocked, costing(program, clocked, None)).least_us()
        share = min(draw.share(bound_us, share) * (1 + CLOCK_ERROR), 1.0)
    return bound_us


class _Bound:
    """The computations of one program, from the inside outwards."""

    def __init__(
        self, program: Program, machine: Machine, estimates: Mapping[str, Estimate]
    ) -> None:
        self.program = program
        self.overheads = Overheads()
        self.kinds = captured_kinds(program.flags)
        graph = graph_of(program, machine, estimates, self.kinds, self.overheads)
        self.nodes = {one.instruction.name: one for one in graph.nodes if one.kind != READ}
        self.least: dict[str, int] = {}
        self.work: dict[str, int] = {}
        """of all nodes, one after the other"""
        self.lost: dict[str, int] = {}
        """of the time of each computation, what may be before anything runs: a step begins then"""

    def least_us(self) -> float:
        for computation in from_inside(self.program):
            self._add(computation)
        # Nothing is before the first kernel, so it follows without a gap.
        gaps = (self.overheads.gap_us * PS_PER_US, *(one.gap_ps for one in self.nodes.values()))
        first_ns = -(-max(gaps) // PS_PER_NS)
        entry = self.program.entry.name
        return max(self.least[entry] - self.lost[entry] - first_ns, 0) / 1000

    def _add(self, computation: Computation) -> None:
        name, calls = computation.name, calls_of(computation)
        inside = {one.name: self._inside(one) for one in calls}
        reads = {one.name: self._read_ns(one, inside[one.name]) for one in calls}
        spans = {one.name: self._length(one, inside[one.name]) + reads[one.name] for one in calls}
        tasks = tasks_of(self.program, computation, self.nodes, spans)
        gapped = with_least_gaps(self.program, tasks, self.nodes, self.kinds, self.overheads)
        tasks = tasks_of(self.program, computation, gapped, spans)
        self.least[name] = bound_ns(tasks, overlap_limit(self.program))
        own = (self.nodes[one].duration_ps for one in tasks.names if one in self.nodes)
        self.work[name] = sum(own) + sum(length_of(one, self.work) for one in calls)
        places = {one: place for place, one in enumerate(tasks.names)}
        self.lost[name] = max(
            (
                reads[one] + max((self.lost[it] for it in inside[one]), default=0)
                for one in inside
                if not tasks.heads[places[one]]
            ),
            default=0,
        )

    def _inside(self, call: Instruction) -> list[str]:
        """What a call runs; of branches, that with most work, as the simulator takes it."""
        names = [name for name in call.called if name in self.least]
        if call.opcode == "conditional" and names:
            return [max(names, key=self.work.__getitem__)]
        return names

    def _length(self, call: Instruction, inside: Sequence[str]) -> int:
        return length_of(replace(call, called=tuple(inside)), self.least)

    def _read_ns(self, call: Instruction, inside: Sequence[str]) -> int:
        """What the read of a call costs, if something is launched behind it."""
        if not is_read(call) or not self._length(call, inside):
            return 0
        has_calls = any(calls_of(self.program.computations[name]) for name in inside)
        return read_ns(self.overheads, launches_first=not has_calls)


def bound_ns(tasks: Tasks, at_once: int = 1) -> int:
    """The longest of the critical path, the bound of each resource, and kernels with what
    collectives cost them; `at_once` is how many of these XLA runs at the same time.

    Resources are the compute stream, copy engines and links. Streams of collectives are none: XLA
    runs a collective on the compute stream if its done follows its start, and may have several.
    """
    by_resource: dict[Resource, list[tuple[int, int, int]]] = defaultdict(list)
    for task in tasks.heavy:
        ns = tasks.ns[task]
        head, behind = tasks.heads[task], tasks.tails[task] - ns
        for one in tasks.resources[task] if ns else ():
            if tasks.kinds[task] == KERNEL or one[0] == "engine":
                by_resource[one].append((head, ns, behind))
        for link, busy in tasks.loads[task]:
            by_resource["link", link].append((head, busy, behind))
    path = max((tasks.tails[task] for task in tasks.heavy), default=0)
    return max(
        path,
        least_with_hiding_ns(tasks, at_once),
        *(_preemptive(jobs) for jobs in by_resource.values()),
    )


def _preemptive(jobs: Iterable[tuple[int, int, int]]) -> int:
    """The bound of one resource; a job is (release, length, chain behind it)."""
    coming = sorted(jobs)
    released: list[tuple[int, int, int]] = []
    now = latest = place = 0
    while place < len(coming) or released:
        if not released:
            now = max(now, coming[place][0])
        while place < len(coming) and coming[place][0] <= now:
            _, length, behind = coming[place]
            heapq.heappush(released, (-behind, place, length))
            place += 1
        behind, job, left = heapq.heappop(released)
        until = coming[place][0] if place < len(coming) else now + left
        ran = min(left, max(until - now, 0)) if until > now else left
        now += ran
        if ran < left:
            heapq.heappush(released, (behind, job, left - ran))
        else:
            latest = max(latest, now - behind)
    return latest
