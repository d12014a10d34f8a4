"""The clock: runs the nodes of a task graph in order and computes when each is on the device.

One thread launches in schedule order. Work on the compute stream starts when the previous work has
ended. Asynchronous work starts when all compute launched before it has ended, its stream has
reached it, and its engine is free; of several that wait for an engine, the longest-waiting one is
next. A done node holds the compute stream until its operation has ended.

The start of asynchronous work is settled as late as possible: only when the compute stream reaches
that time, or waits for it. Work launched later can't start earlier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.errors import BadInput
from slipstream.native import inner, native
from slipstream.profile.events import Array
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.streams import CORES, ENGINES
from slipstream.simulate.task_graph import DONE, PS_PER_US, READ, START, TaskGraph

MOST_WAITING = 4096
"""limit of launched and unsettled asynchronous operations; at the limit, the next is settled"""


@dataclass(frozen=True)
class NodeTimes:
    """When each execution of a node ran: one entry for each entry of the graph's order."""

    start_ps: Array
    """-1 for nodes without work: waits"""
    end_ps: Array
    wait_ps: Array
    """how long the compute stream waited at this node"""


_NEVER = 1 << 62
_LONGEST_PS = 1 << 60
"""of a step: 13 days; sums and slowdowns of such times stay far below `_NEVER`"""
# Columns of the arrays that native code sees, row by row.
_KIND, _DURATION, _HOST, _STREAM, _ENGINE, _SLOT, _TALKS, _GAP, _NODE_SIZE = range(9)
_NODE, _READY, _PLACE, _QUEUE_SIZE = range(4)
_BEGUN, _ENDED, _WAITED, _OUT_SIZE = range(4)
# The state: waiting operations, end of the last collective, a stamp, the stamps of the streams.
_WAITING, _TALKING, _STAMP, _STAMPS = range(4)


@inner
def _ready(item, nodes, queue, streams):  # type: ignore[no-untyped-def]
    """When a waiting operation's stream reaches it."""
    stream = nodes[_NODE_SIZE * queue[_QUEUE_SIZE * item + _NODE] + _STREAM]
    return max(queue[_QUEUE_SIZE * item + _READY], streams[stream])


@inner
def _begin(item, nodes, queue, streams, engines):  # type: ignore[no-untyped-def]
    """When a waiting operation could start."""
    engine = nodes[_NODE_SIZE * queue[_QUEUE_SIZE * item + _NODE] + _ENGINE]
    ready = _ready(item, nodes, queue, streams)
    return max(ready, engines[engine]) if engine > 0 else ready


@inner
def _next(nodes, state, queue, streams, engines):  # type: ignore[no-untyped-def]
    """The waiting operation that starts next; -1 if none waits."""
    best = np.int64(-1)
    best_begin = np.int64(0)
    best_ready = np.int64(0)
    state[_STAMP] += 1
    for item in range(state[_WAITING]):
        stream = nodes[_NODE_SIZE * queue[_QUEUE_SIZE * item + _NODE] + _STREAM]
        if state[_STAMPS + stream] == state[_STAMP]:
            continue  # an earlier one of its stream still waits
        state[_STAMPS + stream] = state[_STAMP]
        begin = _begin(item, nodes, queue, streams, engines)
        ready = _ready(item, nodes, queue, streams)
        if best < 0 or begin < best_begin or (begin == best_begin and ready < best_ready):
            best = np.int64(item)
            best_begin = begin
            best_ready = ready
    return best


@inner
def _settle(item, nodes, state, queue, streams, engines, ends, out):  # type: ignore[no-untyped-def]
    """Fix the start of a waiting operation."""
    row = _NODE_SIZE * queue[_QUEUE_SIZE * item + _NODE]
    place = _OUT_SIZE * queue[_QUEUE_SIZE * item + _PLACE]
    begin = _begin(item, nodes, queue, streams, engines)
    end = begin + nodes[row + _DURATION]
    streams[nodes[row + _STREAM]] = end
    if nodes[row + _ENGINE] > 0:
        engines[nodes[row + _ENGINE]] = end
    ends[nodes[row + _SLOT]] = end
    out[place + _BEGUN] = begin
    out[place + _ENDED] = end
    if nodes[row + _TALKS]:
        state[_TALKING] = max(state[_TALKING], end)
    for at in range(_QUEUE_SIZE * item, _QUEUE_SIZE * (state[_WAITING] - 1)):
        queue[at] = queue[at + _QUEUE_SIZE]
    state[_WAITING] -= 1
    return end


@inner
def _opening(at, nodes, state, queue, streams, engines, ends, out):  # type: ignore[no-untyped-def]
    """When a kernel that is ready at `at` starts: work already on the cores comes first."""
    while True:
        item = _next(nodes, state, queue, streams, engines)
        if item < 0 or _begin(item, nodes, queue, streams, engines) > at:
            return at
        row = _NODE_SIZE * queue[_QUEUE_SIZE * item + _NODE]
        end = _settle(item, nodes, state, queue, streams, engines, ends, out)
        if nodes[row + _ENGINE] == CORES:
            at = max(at, end)


@inner
def _closing(at, left, slowdown, nodes, state, queue, streams, engines, ends, out):  # type: ignore[no-untyped-def]
    """When a kernel ends that starts at `at` and takes `left`, more while collectives run.

    collective     ████████      ████
    kernel      ▒▒▒░░░░░░░░▒▒▒▒▒▒░░        ░ slower
    """
    speed = 1.0 - slowdown
    while True:
        if state[_TALKING] > at:
            could = np.int64((state[_TALKING] - at) * speed)
            if could >= left:
                return at + np.int64(left / speed)
            left -= could
            at = state[_TALKING]
        item = _next(nodes, state, queue, streams, engines)
        if item < 0:
            return at + left
        begin = _begin(item, nodes, queue, streams, engines)
        if begin >= at + left:
            return at + left
        row = _NODE_SIZE * queue[_QUEUE_SIZE * item + _NODE]
        _settle(item, nodes, state, queue, streams, engines, ends, out)
        if nodes[row + _TALKS] and begin > at:
            left -= begin - at
            at = begin


@native("i64(i32*, i64, i64*, f64*, i64, i64, i64, i64*, i64*, i64*, i64*, i64*, i64*)")
def _run(  # type: ignore[no-untyped-def]
    order, count, nodes, slowdown, latency, wake, capacity,
    state, queue, streams, engines, ends, out,
):  # fmt: skip
    never = np.int64(-1)
    launched = np.int64(0)
    free = np.int64(0)
    for place in range(count):
        node = order[place]
        row = _NODE_SIZE * node
        kind = nodes[row + _KIND]
        launched += nodes[row + _HOST]
        if kind == READ:
            launched = max(launched, free + nodes[row + _HOST])
        elif kind == START:
            if state[_WAITING] == capacity:
                item = _next(nodes, state, queue, streams, engines)
                _settle(item, nodes, state, queue, streams, engines, ends, out)
            at = _QUEUE_SIZE * state[_WAITING]
            queue[at + _NODE] = node
            queue[at + _READY] = max(free, launched + latency)
            queue[at + _PLACE] = place
            state[_WAITING] += 1
            ends[nodes[row + _SLOT]] = never
        elif kind == DONE:
            slot = nodes[row + _SLOT]
            while ends[slot] == never:
                item = _next(nodes, state, queue, streams, engines)
                if item < 0:
                    return never  # nothing that was started could end this wait
                _settle(item, nodes, state, queue, streams, engines, ends, out)
            if ends[slot] > free:
                out[_OUT_SIZE * place + _WAITED] = ends[slot] - free
                free = ends[slot] + wake
        else:
            at = max(free + nodes[row + _GAP] if free else free, launched + latency)
            at = _opening(at, nodes, state, queue, streams, engines, ends, out)
            out[_OUT_SIZE * place + _BEGUN] = at
            left = nodes[row + _DURATION]
            if slowdown[node] > 0.0:
                engines[CORES] = _NEVER  # nothing else gets the cores meanwhile
                free = _closing(
                    at, left, slowdown[node], nodes, state, queue, streams, engines, ends, out
                )
            else:
                free = at + left
            out[_OUT_SIZE * place + _ENDED] = free
            engines[CORES] = free
    while state[_WAITING] > 0:
        item = _next(nodes, state, queue, streams, engines)
        _settle(item, nodes, state, queue, streams, engines, ends, out)
    return free


def run(graph: TaskGraph, overheads: Overheads, slowdown: float) -> NodeTimes:
    """Run a task graph; `slowdown` is the share of speed that a modelled kernel loses while a
    collective runs."""
    columns = [
        (n.kind, n.duration_ps, n.host_ps, n.stream, n.engine, n.slot, n.is_communication, n.gap_ps)
        for n in graph.nodes
    ]
    _refuse_impossible(graph, slowdown)
    nodes = np.array(columns, np.int64).reshape(len(graph.nodes), _NODE_SIZE)
    slows = [slowdown * (n.is_modelled and not n.is_communication) for n in graph.nodes]
    latency, wake = (round(us * PS_PER_US) for us in (overheads.latency_us, overheads.wake_us))
    state = np.zeros(_STAMPS + len(graph.streams), np.int64)
    queue = np.zeros(_QUEUE_SIZE * MOST_WAITING, np.int64)
    streams, engines = np.zeros(len(graph.streams), np.int64), np.zeros(ENGINES, np.int64)
    ends = np.zeros(graph.slots + 1, np.int64)
    out = np.zeros((len(graph.order), _OUT_SIZE), np.int64)
    out[:, _BEGUN] = -1
    _run(
        np.ascontiguousarray(graph.order), len(graph.order), nodes.ravel(),
        np.array(slows, np.float64), latency, wake, MOST_WAITING,
        state, queue, streams, engines, ends, out.ravel(),
    )  # fmt: skip
    return NodeTimes(out[:, _BEGUN], out[:, _ENDED], out[:, _WAITED])


def _refuse_impossible(graph: TaskGraph, slowdown: float) -> None:
    """The native clock can't raise, so times that it can't add up don't reach it."""
    if not 0 <= slowdown < 1:  # not a number, too
        raise BadInput(
            f"a kernel would lose {slowdown:g} of its speed while a collective runs; expected 0 or "
            "more and less than 1: check the machine's cores"
        )
    counts = np.bincount(graph.order, minlength=len(graph.nodes)).tolist()
    total = 0
    for node, count in zip(graph.nodes, counts, strict=True):
        times = (node.duration_ps, node.host_ps, node.gap_ps)
        if min(times) < 0:
            raise BadInput(
                f"{node.instruction.name} takes {min(times) / PS_PER_US:g} µs; expected 0 or more"
            )
        total += count * sum(times)
    if total > _LONGEST_PS:
        longest = max(graph.nodes, key=lambda node: node.duration_ps)
        raise BadInput(
            f"a step of {graph.program.name} would take {total / PS_PER_US:.3g} µs (its longest "
            f"instruction, {longest.instruction.name}, {longest.duration_ps / PS_PER_US:.3g} µs); "
            f"expected less than {_LONGEST_PS / PS_PER_US:.3g} µs (13 days): check the costs"
        )
