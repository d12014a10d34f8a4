"""The clock: runs the nodes of a task graph in order and computes when each is on the device.

One thread launches in schedule order. Work on the compute stream starts when the previous work has
ended. Asynchronous work starts when all compute launched before it has ended, its stream has
reached it, and its engine is free; of several that wait for an engine, the longest-waiting one is
next. A done node holds the compute stream until its operation has ended.

What runs at the same time shares the links of the GPU (`machines.links`), and kernels and
collectives slow each other (`contention`):

    gather 1   ████████▒▒▒▒▒▒▒▒▒▒▒▒            █ at full speed
    gather 2           ▒▒▒▒▒▒▒▒▒▒▒▒████        ▒ both at half speed: they fill the link together
    kernel         ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒          slower, because collectives occupy cores

Each operation uses a share of each link when it runs alone. From one start or end to the next,
operations progress at constant rates, which are max-min fair: what each uses of its busiest link
rises evenly until it runs at full speed, or one of its links is full. Time moves from event to
event.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.errors import BadInput
from slipstream.machines.links import LINKS
from slipstream.native import inner, native
from slipstream.profile.events import Array
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.streams import COMPUTE, CORES, ENGINES
from slipstream.simulate.task_graph import DONE, PS_PER_US, READ, START, TaskGraph


@dataclass(frozen=True)
class NodeTimes:
    """When each execution of a node ran: one entry for each entry of the graph's order."""

    start_ps: Array
    """-1 for nodes without work: waits"""
    end_ps: Array
    """of waits, too"""
    wait_ps: Array
    """how long the compute stream waited at this node"""


NEVER = 1 << 62
_LONGEST_PS = 1 << 60
"""of a step: 13 days; sums and slowdowns of such times stay far below `NEVER`"""
_MOST_TAKEN = 0.5
"""share of cores, or of the memory's rate, that collectives take from a kernel at most"""
MOST_LOST = 0.75
"""share of its speed that an operation loses at most beside work of the other sort"""
_FULL = 1 - 1e-9
"""a link that is this full is full: sums of shares are not exact"""
# Columns of the arrays that native code sees, row by row.
_KIND, _DURATION, _HOST, _STREAM, _ENGINE, SLOT, _TALKS, _GAP, NODE_SIZE = range(9)
# Of a node, as shares: links in use when it runs alone, then its contention.
LINK_COUNT = len(LINKS)
_CORES, _MEMORY, _LOSES, _BY_CORES, _BY_MEMORY, _SHARES_SIZE = range(LINK_COUNT, LINK_COUNT + 6)
# Of a place in the order: when an operation that waits for its stream is ready, and the next there.
READY, NEXT, QUEUE_SIZE = range(3)
# Of a stream: the places that wait for it, what runs (or -1), since when it has run at this rate or
# been idle, and when it would end.
HEAD, TAIL, RUNS, SINCE, END, STREAM_SIZE = range(6)
# Of what runs on a stream: the work left at `SINCE`, its rate, its rate if no link were full, its
# share of its busiest link, and the rate that it will have.
LEFT, RATE, _MOST, _BUSIEST, _GETS, RATE_SIZE = range(6)
_BEGUN, ENDED, _WAITED, OUT_SIZE = range(4)
# Of a run: the time, how many streams there are, how much the host has launched, since when the
# compute stream is free, the last end of a wait, and how far ahead of it the host was at least.
NOW, COUNT, LAUNCHED, FREE, LAST, AHEAD, STATE_SIZE = range(7)


@inner
def _start(stream, place, order, nodes, state, streams, rates, engines, out):  # type: ignore[no-untyped-def]
    """An operation begins now, at a rate that is still to be set."""
    row = NODE_SIZE * order[place]
    streams[STREAM_SIZE * stream + RUNS] = place
    streams[STREAM_SIZE * stream + SINCE] = state[NOW]
    streams[STREAM_SIZE * stream + END] = state[NOW] + nodes[row + _DURATION]
    rates[RATE_SIZE * stream + LEFT] = nodes[row + _DURATION]
    rates[RATE_SIZE * stream + RATE] = 1.0
    out[OUT_SIZE * place + _BEGUN] = state[NOW]
    engine = CORES if stream == COMPUTE else nodes[row + _ENGINE]
    if engine > 0:
        engines[engine] = 1


@inner
def _finish(order, nodes, state, streams, engines, ends, out):  # type: ignore[no-untyped-def]
    """End what ends now."""
    for stream in range(state[COUNT]):
        at = STREAM_SIZE * stream
        place = streams[at + RUNS]
        if place < 0 or streams[at + END] > state[NOW]:
            continue
        row = NODE_SIZE * order[place]
        out[OUT_SIZE * place + ENDED] = state[NOW]
        streams[at + RUNS] = -1
        streams[at + SINCE] = state[NOW]
        engine = CORES if stream == COMPUTE else nodes[row + _ENGINE]
        if engine > 0:
            engines[engine] = 0
        if stream != COMPUTE:
            ends[nodes[row + SLOT]] = state[NOW]


@inner
def _start_waiting(order, nodes, state, queue, streams, rates, engines, out):  # type: ignore[no-untyped-def]
    """Start what can start now, the longest-waiting first."""
    while True:
        best = np.int64(-1)
        best_since = np.int64(0)
        for stream in range(1, state[COUNT]):
            at = STREAM_SIZE * stream
            place = streams[at + HEAD]
            if streams[at + RUNS] >= 0 or place < 0:
                continue
            since = max(queue[QUEUE_SIZE * place + READY], streams[at + SINCE])
            engine = nodes[NODE_SIZE * order[place] + _ENGINE]
            if since > state[NOW] or (engine > 0 and engines[engine]):
                continue
            first = streams[STREAM_SIZE * best + HEAD] if best >= 0 else place
            if best < 0 or since < best_since or (since == best_since and place < first):
                best = np.int64(stream)
                best_since = since
        if best < 0:
            return
        place = streams[STREAM_SIZE * best + HEAD]
        streams[STREAM_SIZE * best + HEAD] = queue[QUEUE_SIZE * place + NEXT]
        _start(best, place, order, nodes, state, streams, rates, engines, out)


@inner
def _run_freely(order, nodes, shares, state, streams, rates, links):  # type: ignore[no-untyped-def]
    """Give each operation the rate it has if no link is full; returns whether none is."""
    kernels = np.int64(0)
    collectives = np.int64(0)
    cores = 0.0
    memory = 0.0
    for stream in range(state[COUNT]):
        place = streams[STREAM_SIZE * stream + RUNS]
        if place >= 0:
            node = order[place]
            if nodes[NODE_SIZE * node + _TALKS]:
                collectives += shares[_SHARES_SIZE * node + _CORES] > 0.0
                cores += shares[_SHARES_SIZE * node + _CORES]
                memory += shares[_SHARES_SIZE * node + _MEMORY]
            elif stream == COMPUTE or nodes[NODE_SIZE * node + _ENGINE] == CORES:
                kernels += 1
    cores = min(cores, _MOST_TAKEN)
    memory = min(memory, _MOST_TAKEN)
    for link in range(LINK_COUNT):
        links[link] = 0.0
    fits = True
    for stream in range(state[COUNT]):
        place = streams[STREAM_SIZE * stream + RUNS]
        if place < 0:
            continue
        row = _SHARES_SIZE * order[place]
        others = kernels if nodes[NODE_SIZE * order[place] + _TALKS] else collectives
        lost = 0.0
        if others > 0:
            lost = shares[row + _LOSES] + shares[row + _BY_CORES] * cores
            lost = min(lost + shares[row + _BY_MEMORY] * memory, MOST_LOST)
        at = RATE_SIZE * stream
        rates[at + _MOST] = 1.0 - lost
        rates[at + _GETS] = rates[at + _MOST]
        rates[at + _BUSIEST] = 0.0
        for link in range(LINK_COUNT):
            rates[at + _BUSIEST] = max(rates[at + _BUSIEST], shares[row + link])
            links[link] += rates[at + _MOST] * shares[row + link]
            fits = fits and links[link] <= 1.0
    return fits


@inner
def _share(order, nodes, shares, state, streams, rates, links):  # type: ignore[no-untyped-def]
    """Set the rates of all that runs."""
    if not _run_freely(order, nodes, shares, state, streams, rates, links):
        _fill(order, shares, state, streams, rates, links)
    for stream in range(state[COUNT]):
        at, its = STREAM_SIZE * stream, RATE_SIZE * stream
        if streams[at + RUNS] >= 0 and rates[its + _GETS] != rates[its + RATE]:
            rates[its + LEFT] -= (state[NOW] - streams[at + SINCE]) * rates[its + RATE]
            rates[its + RATE] = rates[its + _GETS]
            streams[at + SINCE] = state[NOW]
            left = max(rates[its + LEFT], 0.0) / rates[its + RATE] + 0.5
            streams[at + END] = state[NOW] + np.int64(min(left, float(_LONGEST_PS)))


@inner
def _fill(order, shares, state, streams, rates, links):  # type: ignore[no-untyped-def]
    """Raise the rates from zero until each operation is at full speed or has a full link.

    At a level x, an operation that still rises uses x of its busiest link, so its rate is x divided
    by its share of that link. `_GETS` below zero: it still rises.
    """
    rising = np.int64(0)
    for stream in range(state[COUNT]):
        its = RATE_SIZE * stream
        if streams[STREAM_SIZE * stream + RUNS] >= 0 and rates[its + _BUSIEST] > 0.0:
            rates[its + _GETS] = -1.0
            rising += 1
    while rising > 0:
        level = np.inf
        for stream in range(state[COUNT]):
            its = RATE_SIZE * stream
            if streams[STREAM_SIZE * stream + RUNS] >= 0 and rates[its + _GETS] < 0.0:
                level = min(level, rates[its + _MOST] * rates[its + _BUSIEST])
        for link in range(LINK_COUNT):
            used = 0.0
            slope = 0.0
            for stream in range(state[COUNT]):
                place = streams[STREAM_SIZE * stream + RUNS]
                if place >= 0:
                    its = RATE_SIZE * stream
                    share = shares[_SHARES_SIZE * order[place] + link]
                    if rates[its + _GETS] >= 0.0:
                        used += rates[its + _GETS] * share
                    else:
                        slope += share / rates[its + _BUSIEST]
            links[link] = max(1.0 - used, 0.0) / slope if slope > 0.0 else np.inf
            level = min(level, links[link])
        # What reaches full speed, or a full link, at this level stays there.
        for stream in range(state[COUNT]):
            place = streams[STREAM_SIZE * stream + RUNS]
            its = RATE_SIZE * stream
            if place < 0 or rates[its + _GETS] >= 0.0:
                continue
            stops = rates[its + _MOST] * rates[its + _BUSIEST] * _FULL <= level
            for link in range(LINK_COUNT):
                uses = shares[_SHARES_SIZE * order[place] + link] > 0.0
                stops = stops or (uses and links[link] * _FULL <= level)
            if stops:
                rates[its + _GETS] = min(level / rates[its + _BUSIEST], rates[its + _MOST])
                rising -= 1


@inner
def _next_event(order, nodes, state, queue, streams, engines):  # type: ignore[no-untyped-def]
    """When something ends, or could start, next."""
    time = np.int64(NEVER)
    for stream in range(state[COUNT]):
        at = STREAM_SIZE * stream
        place = streams[at + HEAD]
        if streams[at + RUNS] >= 0:
            time = min(time, streams[at + END])
        elif place >= 0:
            engine = nodes[NODE_SIZE * order[place] + _ENGINE]
            if not (engine > 0 and engines[engine]):
                since = max(queue[QUEUE_SIZE * place + READY], streams[at + SINCE])
                time = min(time, since)
    return time


@inner
def _move(time, order, nodes, shares, state, queue, streams, rates, links, engines, ends, out):  # type: ignore[no-untyped-def]
    """Move to a time before which nothing ends or starts."""
    state[NOW] = max(state[NOW], time)
    _finish(order, nodes, state, streams, engines, ends, out)
    _start_waiting(order, nodes, state, queue, streams, rates, engines, out)
    _share(order, nodes, shares, state, streams, rates, links)


@inner
def advance(  # type: ignore[no-untyped-def]
    first, last, order, nodes, shares, latency, wake,
    state, queue, streams, rates, links, engines, ends, out,
):  # fmt: skip
    """Launch what is at these places of an order; -1 if a wait can't end."""
    never = np.int64(-1)
    launched = state[LAUNCHED]
    free = state[FREE]
    for place in range(first, last):
        if order[place] < 0:
            continue  # nothing runs
        row = NODE_SIZE * order[place]
        kind = nodes[row + _KIND]
        launched += nodes[row + _HOST]
        if kind != DONE:
            state[AHEAD] = min(state[AHEAD], free - launched - latency)
        if kind == READ:
            launched = max(launched, free + nodes[row + _HOST])
        elif kind == START:
            at = STREAM_SIZE * nodes[row + _STREAM]
            queue[QUEUE_SIZE * place + READY] = max(free, launched + latency)
            queue[QUEUE_SIZE * place + NEXT] = never
            if streams[at + HEAD] < 0:
                streams[at + HEAD] = place
            else:
                queue[QUEUE_SIZE * streams[at + TAIL] + NEXT] = place
            streams[at + TAIL] = place
            ends[nodes[row + SLOT]] = never
        elif kind == DONE:
            slot = nodes[row + SLOT]
            while ends[slot] == never:
                time = _next_event(order, nodes, state, queue, streams, engines)
                if time == NEVER:
                    return never  # nothing that was started could end this wait
                _move(
                    time, order, nodes, shares, state, queue, streams, rates, links, engines,
                    ends, out,
                )  # fmt: skip
            if ends[slot] > free:
                out[OUT_SIZE * place + _WAITED] = ends[slot] - free
                out[OUT_SIZE * place + ENDED] = ends[slot]
                free = ends[slot] + wake
            else:
                out[OUT_SIZE * place + ENDED] = free
            state[LAST] = max(state[LAST], out[OUT_SIZE * place + ENDED])
        else:
            at = max(free + nodes[row + _GAP] if free else free, launched + latency)
            # Work that is already on the cores, or that could be before, comes first.
            time = _next_event(order, nodes, state, queue, streams, engines)
            while time <= at or engines[CORES]:
                at = max(at, time)
                _move(
                    time, order, nodes, shares, state, queue, streams, rates, links, engines,
                    ends, out,
                )  # fmt: skip
                time = _next_event(order, nodes, state, queue, streams, engines)
            state[NOW] = at
            _start(COMPUTE, place, order, nodes, state, streams, rates, engines, out)
            _share(order, nodes, shares, state, streams, rates, links)
            while streams[STREAM_SIZE * COMPUTE + RUNS] >= 0:
                time = _next_event(order, nodes, state, queue, streams, engines)
                _move(
                    time, order, nodes, shares, state, queue, streams, rates, links, engines,
                    ends, out,
                )  # fmt: skip
            free = state[NOW]
    state[LAUNCHED] = launched
    state[FREE] = free
    return np.int64(0)


@inner
def finish_all(order, nodes, shares, state, queue, streams, rates, links, engines, ends, out):  # type: ignore[no-untyped-def]
    """Run to its end what has been launched."""
    time = _next_event(order, nodes, state, queue, streams, engines)
    while time < NEVER:
        _move(time, order, nodes, shares, state, queue, streams, rates, links, engines, ends, out)
        time = _next_event(order, nodes, state, queue, streams, engines)


@native("i64(i32*, i64, i64*, f64*, i64, i64, i64*, i64*, i64*, f64*, f64*, i64*, i64*, i64*)")
def _run(  # type: ignore[no-untyped-def]
    order, count, nodes, shares, latency, wake,
    state, queue, streams, rates, links, engines, ends, out,
):  # fmt: skip
    ended = advance(
        0, count, order, nodes, shares, latency, wake,
        state, queue, streams, rates, links, engines, ends, out,
    )  # fmt: skip
    if ended < 0:
        return ended
    finish_all(order, nodes, shares, state, queue, streams, rates, links, engines, ends, out)
    return state[FREE]


class Clock:
    """Runs the nodes of a task graph in any order; for many orders of one graph."""

    def __init__(self, graph: TaskGraph, overheads: Overheads) -> None:
        columns = [
            (n.kind, n.duration_ps, n.host_ps, n.stream, n.engine, n.slot, n.is_communication,
             n.gap_ps)
            for n in graph.nodes
        ]  # fmt: skip
        self.nodes = np.array(columns, np.int64).reshape(len(graph.nodes), NODE_SIZE)
        self.shares = _shares(graph, overheads.contention)
        self.streams = len(graph.streams)
        self.slots = graph.slots + 1
        self.latency, self.wake = (
            round(us * PS_PER_US) for us in (overheads.latency_us, overheads.wake_us)
        )

    def times(self, order: Array) -> NodeTimes:
        """When each entry of an order runs; its total must be below `_LONGEST_PS`."""
        out = np.zeros((len(order), OUT_SIZE), np.int64)
        out[:, _BEGUN] = -1
        self._run(order, out)
        return NodeTimes(out[:, _BEGUN], out[:, ENDED], out[:, _WAITED])

    def span_ps(self, order: Array) -> int:
        """When the last node has ended."""
        out = np.zeros((len(order), OUT_SIZE), np.int64)
        self._run(order, out)
        return int(out[:, ENDED].max(initial=0))

    def new_state(self) -> Array:
        """The state of a run, before anything is launched."""
        state = np.zeros(STATE_SIZE, np.int64)
        state[COUNT] = self.streams
        return state

    def new_streams(self) -> Array:
        """Streams on which nothing runs."""
        streams = np.zeros((self.streams, STREAM_SIZE), np.int64)
        streams[:, [HEAD, TAIL, RUNS]] = -1
        return streams

    def _run(self, order: Array, out: Array) -> None:
        _run(
            np.ascontiguousarray(order), len(order), self.nodes.ravel(), self.shares.ravel(),
            self.latency, self.wake, self.new_state(),
            np.zeros(QUEUE_SIZE * len(order), np.int64), self.new_streams().ravel(),
            np.zeros(RATE_SIZE * self.streams), np.zeros(LINK_COUNT), np.zeros(ENGINES, np.int64),
            np.zeros(self.slots, np.int64), out.ravel(),
        )  # fmt: skip


def run(graph: TaskGraph, overheads: Overheads) -> NodeTimes:
    """Run a task graph in its own order."""
    refuse_impossible(graph)
    return Clock(graph, overheads).times(graph.order)


def _shares(graph: TaskGraph, counted: float) -> Array:
    found = np.zeros((len(graph.nodes), _SHARES_SIZE))
    for row, node in zip(found, graph.nodes, strict=True):
        for link, share in node.links:
            row[link] = share
        slows = node.contention
        row[_CORES], row[_MEMORY] = slows.cores, slows.memory
        loses = (slows.loses, slows.loses_by_cores, slows.loses_by_memory)
        row[_LOSES:_SHARES_SIZE] = [counted * lost for lost in loses]
    return found


def refuse_impossible(graph: TaskGraph) -> None:
    """The native clock can't raise, so times that it can't add up don't reach it."""
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
