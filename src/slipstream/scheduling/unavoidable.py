"""Launch overheads that no order avoids, for the bound.

A read      The host waits until the device has come to a branch, or to a loop whose turns are not
            known. Only then it launches what is inside.
A gap       Before each kernel; a short one inside a CUDA graph. A graph captures neighbours, so no
            order captures a kernel that has too few commands near it which no collective, wait or
            loop has to come between.
A wait      An operation beside which nothing can run: the compute stream waits for its end, and
            then wakes up. XLA may run a collective on the compute stream instead, after a gap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from slipstream.profile.program import Instruction, Program
from slipstream.scheduling.tasks import KERNEL, START, Tasks
from slipstream.simulate.graphs import is_command, least_size
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.task_graph import PS_PER_US, Node

MOST_TASKS = 3000
"""kernels and starts of a computation for which it is looked up what can be near what"""
NS_PER_US = 1000


def is_read(call: Instruction) -> bool:
    """Whether the host has to read something from the device before it launches what is inside."""
    return call.opcode == "conditional" or (call.opcode == "while" and call.trip_count is None)


def read_ns(overheads: Overheads, *, launches_first: bool) -> int:
    """From the end of all before a read to what is launched behind it; `launches_first`: that is a
    kernel or a start, and not another read. The gap before that kernel passes meanwhile."""
    launch_us = overheads.launch_us + overheads.latency_us
    gap_us = overheads.gap_us + overheads.library_us
    us = overheads.read_us + launches_first * max(launch_us - gap_us, 0.0)
    return round(us * NS_PER_US)


def with_least_gaps(
    program: Program,
    tasks: Tasks,
    nodes: Mapping[str, Node],
    kinds: frozenset[str],
    overheads: Overheads,
) -> dict[str, Node]:
    """The nodes, those of one computation with the shortest gap that each has in any order."""
    gap_ps, graph_gap_ps = (
        round(us * PS_PER_US) for us in (overheads.gap_us, overheads.graph_gap_us)
    )
    commands = {
        task
        for task in tasks.heavy
        if is_command(program, tasks.computation.instructions[task], kinds)
    }
    captured = capturable(tasks, commands, least_size(program))
    alone = alone_with(tasks)
    found = dict(nodes)
    for task in tasks.heavy:
        node = nodes.get(tasks.names[task])
        if node is None:
            continue
        if tasks.kinds[task] == KERNEL and task in captured and not node.graph:
            node = replace(node, gap_ps=max(node.gap_ps - gap_ps + graph_gap_ps, 0))
        elif task in alone and node.duration_ps and tasks.ended_before[task]:
            least_ps = round(overheads.wake_us * PS_PER_US)
            if task in tasks.collectives:
                least_ps = min(least_ps, gap_ps)
            if task in commands:
                least_ps = min(least_ps, graph_gap_ps)
            node = replace(node, gap_ps=least_ps)
        found[node.instruction.name] = node
    return found


def capturable(tasks: Tasks, commands: Collection[int], least: int) -> Collection[int]:
    """The commands that some order may bring into a CUDA graph, which has at least so many."""
    starts = _bits(task for task in commands if tasks.kinds[task] == START)
    every = _bits(commands)

    def size(bits: int) -> int:  # an asynchronous fusion is a start and a done
        return bits.bit_count() + (bits & starts).bit_count()

    if size(every) < least:
        return ()
    if len(tasks.heavy) > MOST_TASKS:
        return commands
    before = _parted(tasks.heavy, tasks.after, commands)
    behind = _parted(tasks.heavy[::-1], tasks.before, commands)
    return {task for task in commands if size(every & ~(before[task] | behind[task])) >= least}


def _bits(tasks: Iterable[int]) -> int:
    found = 0
    for task in tasks:
        found |= 1 << task
    return found


def _parted(
    order: Iterable[int], needed: Mapping[int, Iterable[int]], commands: Collection[int]
) -> dict[int, int]:
    """Of each task those on whose way to it something else than a command comes, as bits."""
    every: dict[int, int] = {}
    parted: dict[int, int] = {}
    for task in order:
        every[task] = parted[task] = 0
        for one in needed[task]:
            every[task] |= every[one] | 1 << one
            parted[task] |= parted[one] if one in commands else every[one]
    return parted


def alone_with(tasks: Tasks) -> Collection[int]:
    """The starts beside whose operations nothing can run: all else has to end before, or needs
    their end."""
    if len(tasks.heavy) > MOST_TASKS:
        return ()
    near = dict.fromkeys(tasks.heavy, 0)
    for order, needed in (
        (tasks.heavy, tasks.ended_after),
        (tasks.heavy[::-1], tasks.ended_before),
    ):
        every: dict[int, int] = {}
        for task in order:
            every[task] = 0
            for one in needed[task]:
                every[task] |= every[one] | 1 << one
            near[task] += every[task].bit_count()
    return {
        task
        for task in tasks.heavy
        if tasks.kinds[task] == START and near[task] == len(tasks.heavy) - 1
    }
