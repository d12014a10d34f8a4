"""The native clock against a plain one."""

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from link_invariant import check_links
from plain_clock import plain_run
from slipstream.errors import BadInput
from slipstream.machines.links import LINK_OUT, NETWORK_OUT
from slipstream.simulate.clock import run
from slipstream.simulate.contention import Contention
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.streams import CORES, ENGINES
from slipstream.simulate.task_graph import DONE, KERNEL, READ, START, Node, TaskGraph

US = 1_000_000
STREAMS = ["compute", "one", "two", "three"]
# Slowed to half, a time is halved once for each kernel: whole powers of two stay whole numbers.
UNIT = 1 << 24


# Of a link, when an operation runs alone: halves, so that rates are fractions of small numbers.
USES = st.lists(
    st.tuples(st.sampled_from([LINK_OUT, NETWORK_OUT]), st.sampled_from([0.5, 1.0])),
    unique_by=lambda use: use[0],
).map(tuple)


# Halves and quarters, so that times stay whole numbers.
SLOWER = st.builds(
    Contention,
    cores=st.sampled_from([0.0, 0.25]),
    memory=st.sampled_from([0.0, 0.5]),
    loses=st.sampled_from([0.0, 0.25, 0.5]),
    loses_by_cores=st.sampled_from([0.0, 1.0]),
    loses_by_memory=st.sampled_from([0.0, 0.5]),
)


def times(least: int = 1) -> st.SearchStrategy[int]:
    return st.integers(least, 8).map(lambda units: units * UNIT)


@st.composite
def plans(draw: st.DrawFn) -> TaskGraph:
    """Kernels, asynchronous operations that are awaited some time later, waits of the host."""
    instruction: Any = None
    nodes: list[Node] = []
    order: list[int] = []
    open_slots: list[int] = []
    slots = 0
    for _ in range(draw(st.integers(1, 14))):
        kind = draw(st.sampled_from([KERNEL, KERNEL, START, START, DONE, READ]))
        host = draw(times(0))
        if kind == KERNEL:
            talks = draw(st.booleans())
            nodes.append(
                Node(KERNEL, instruction, draw(times()), host, is_communication=talks,
                     contention=draw(SLOWER), gap_ps=draw(times(0)),
                     links=draw(USES) if talks else ())
            )  # fmt: skip
        elif kind == START:
            stream, engine = draw(st.integers(1, 3)), draw(st.integers(0, ENGINES - 1))
            talks = engine == 0 and draw(st.booleans())
            nodes.append(
                Node(START, instruction, draw(times()), host, stream, engine, slots, talks,
                     draw(SLOWER), links=draw(USES) if talks else ())
            )  # fmt: skip
            open_slots.append(slots)
            slots += 1
        elif kind == DONE and open_slots:
            slot = open_slots.pop(draw(st.integers(0, len(open_slots) - 1)))
            nodes.append(Node(DONE, instruction, slot=slot))
        elif kind == READ:
            nodes.append(Node(READ, instruction, host_ps=host))
        else:
            continue
        order.append(len(nodes) - 1)
    turns = 1 if open_slots else draw(st.integers(1, 2))
    return TaskGraph(None, STREAMS, nodes, np.tile(np.array(order, np.int32), turns), slots)  # type: ignore[arg-type]


@given(plans(), times(0), times(0))
def test_the_native_clock_is_the_plain_one(graph: TaskGraph, latency: int, wake: int) -> None:
    overheads = Overheads(latency_us=latency / US, wake_us=wake / US)
    found = run(graph, overheads)
    start, end, wait = plain_run(graph, latency, wake)
    assert found.start_ps.tolist() == start
    assert found.end_ps.tolist() == end
    assert found.wait_ps.tolist() == wait
    check_links(graph, found)


def gathers(count: int, share: float, duration_ps: int = 12) -> TaskGraph:
    """Operations on streams of their own that use a share of one link, launched at once."""
    starts = [
        Node(START, None, duration_ps, 0, 1 + slot, 0, slot, True, links=((LINK_OUT, share),))  # type: ignore[arg-type]
        for slot in range(count)
    ]
    names = ["compute", *map(str, range(count))]
    return TaskGraph(None, names, starts, np.arange(count, dtype=np.int32), count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("count", "share", "end"), [(1, 1.0, 12), (4, 1.0, 48), (4, 0.25, 12), (4, 0.5, 24)]
)
def test_operations_at_once_share_a_link(count: int, share: float, end: int) -> None:
    found = run(gathers(count, share), Overheads(latency_us=0))
    assert found.start_ps.tolist() == [0] * count
    assert found.end_ps.tolist() == [end] * count


def test_who_needs_less_than_a_fair_part_is_not_slowed() -> None:
    """
    needs 1/4   ████        at full speed
    needs 1     ▒▒▒▒███     3/4 of the link, then all of it
    """
    graph = gathers(2, 1.0)
    graph.nodes[0] = replace(graph.nodes[0], links=((LINK_OUT, 0.25),))
    found = run(graph, Overheads(latency_us=0))
    assert found.end_ps.tolist() == [12, 15]


COSTLY = "one"


def graph_of(*durations_ps: int) -> TaskGraph:
    """Operations on one stream, each awaited."""
    instruction: Any = SimpleNamespace(name=COSTLY)
    nodes: list[Node] = []
    for slot, duration_ps in enumerate(durations_ps):
        nodes.append(Node(START, instruction, duration_ps, 0, 1, CORES, slot))
        nodes.append(Node(DONE, instruction, slot=slot))
        nodes.append(Node(KERNEL, instruction, duration_ps))
    order = np.arange(len(nodes), dtype=np.int32)
    program: Any = SimpleNamespace(name="jit_step")
    return TaskGraph(program, STREAMS, nodes, order, len(durations_ps))


@given(st.lists(st.integers(-(2**70), 2**70) | st.integers(-20 * US, 20 * US), min_size=1))
def test_times_that_cannot_be_are_refused(durations_ps: list[int]) -> None:
    possible = min(durations_ps) >= 0 and 2 * sum(durations_ps) <= 1 << 60
    with nullcontext() if possible else pytest.raises(BadInput, match=COSTLY):
        run(graph_of(*durations_ps), Overheads())
