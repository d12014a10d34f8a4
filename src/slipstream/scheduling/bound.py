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
from collections.abc import Iterable, Mapping
from dataclasses import replace

from slipstream.costs.table import CostTable
from slipstream.machines.machine import Estimate, Machine
from slipstream.profile.program import Program
from slipstream.scheduling.computations import calls_of, from_inside, length_of
from slipstream.scheduling.hiding import least_with_hiding_ns
from slipstream.scheduling.tasks import KERNEL, PS_PER_NS, Resource, Tasks, tasks_of
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
        return _bound_us(program, clocked, costing(program, clocked, costs, source))
    share = without_waits(program, machine)
    draw = StepPower(program, machine, executions_of(program))
    bound_us = 0.0
    for _ in range(CORRECTIONS):
        clocked = machine.at(share)
        bound_us = _bound_us(program, clocked, costing(program, clocked, None))
        share = min(draw.share(bound_us, share) * (1 + CLOCK_ERROR), 1.0)
    return bound_us


def _bound_us(program: Program, machine: Machine, estimates: Mapping[str, Estimate]) -> float:
    overheads = Overheads()
    graph = graph_of(program, machine, estimates, captured_kinds(program.flags), overheads)
    # A kernel follows the one before it soonest inside a CUDA graph.
    gap_ps = round(overheads.graph_gap_us * PS_PER_US)
    nodes = {
        one.instruction.name: replace(one, gap_ps=min(one.gap_ps, gap_ps))
        for one in graph.nodes
        if one.kind != READ
    }
    least: dict[str, int] = {}
    for computation in from_inside(program):
        spans = {one.name: length_of(one, least) for one in calls_of(computation)}
        least[computation.name] = bound_ns(
            tasks_of(program, computation, nodes, spans), overlap_limit(program)
        )
    # Nothing is before the first kernel, so it follows without a gap.
    return max(least[program.entry.name] - gap_ps // PS_PER_NS, 0) / 1000


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
