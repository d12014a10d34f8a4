"""Orders of one computation, simulated: its nodes run by the simulator's native clock.

A loop's turns follow each other, and nothing asynchronous outlives one, so one run is the steady
state. A loop inside the computation counts as one kernel, and so does a collective that XLA makes
synchronous: in a window, pairs around it may become or cease to be so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from slipstream.profile.events import Array
from slipstream.scheduling.synchronous import Stretches
from slipstream.scheduling.tasks import DONE, KERNEL, PS_PER_NS, START, Tasks
from slipstream.simulate.clock import Clock
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.streams import COMPUTE
from slipstream.simulate.task_graph import KERNEL as KERNEL_NODE
from slipstream.simulate.task_graph import PS_PER_US, Node, TaskGraph
from slipstream.simulate.window_clock import WindowClock


class Trial:
    """How long sequences of one computation take."""

    def __init__(
        self,
        tasks: Tasks,
        graph: TaskGraph,
        nodes: Mapping[str, Node],
        spans_ns: Mapping[str, int],
        overheads: Overheads,
    ) -> None:
        self._stretches = Stretches(tasks)
        self._of = np.full(len(tasks), -1, np.int32)
        """the node of each task; -1 if nothing runs"""
        self._inline = self._of.copy()
        """that of each collective, if it is synchronous"""
        chosen: list[Node] = []
        for place, one in enumerate(tasks.computation.instructions):
            if tasks.kinds[place] not in (KERNEL, START, DONE):
                continue
            node = nodes.get(one.name)
            if one.name in spans_ns:
                node = Node(KERNEL_NODE, one, duration_ps=spans_ns[one.name] * PS_PER_NS)
            if node is not None:
                self._of[place] = len(chosen)
                chosen.append(node)
        for start in sorted(self._stretches.starts):
            self._inline[start] = len(chosen)
            chosen.append(_inline(chosen[self._of[start]], overheads))
        self._streams = [node.stream for node in chosen]
        self._clock = Clock(replace(graph, nodes=chosen), overheads)
        self._windows: WindowClock | None = None

    def times(self, sequence: Sequence[int]) -> list[tuple[int, int, int, int]]:
        """(task, stream, begin, end) of all that runs, in nanoseconds."""
        tasks = np.asarray(sequence, np.int64)
        nodes = self._nodes_of(tasks)
        runs = nodes >= 0
        found = self._clock.times(nodes[runs])
        rows = zip(tasks[runs], nodes[runs], found.start_ps, found.end_ps, strict=True)
        return [
            (int(task), self._streams[node], int(start) // PS_PER_NS, int(end) // PS_PER_NS)
            for task, node, start, end in rows
            if start >= 0
        ]

    def span_ns(self, sequence: Sequence[int]) -> int:
        """From the first launch to the last end."""
        nodes = self._nodes_of(np.asarray(sequence, np.int64))
        return -(-self._clock.span_ps(nodes[nodes >= 0]) // PS_PER_NS)

    # Sequences that differ from a known one in a window: only the window is simulated.

    def know(self, sequence: Sequence[int]) -> None:
        """Let the windows that follow be windows of this sequence."""
        self._known = np.array(sequence, np.int64)
        self._known_nodes = self._nodes_of(self._known)
        self._known_parts = bytearray(self._stretches.parts[self._known].tobytes())
        self._windows = WindowClock(self._clock, self._known_nodes)

    def span_of_window_ns(self, first: int, window: Sequence[int]) -> int:
        """The span of the known sequence with other tasks from place `first` on."""
        assert self._windows is not None
        tasks = np.asarray(window, np.int64)
        self._tried = (first, tasks, *self._changed(first, tasks))
        return -(-self._windows.span_ps(*self._tried[2:]) // PS_PER_NS)

    def _changed(self, first: int, tasks: Array) -> tuple[int, Array]:
        """The nodes that change, from the first to the last, in all stretches of a window."""
        last = first + len(tasks)
        begin = self._known_parts.rfind(1, 0, first) + 1
        end = self._known_parts.find(1, last)
        end = len(self._known) if end < 0 else end
        nodes = self._nodes_of(
            np.concatenate((self._known[begin:first], tasks, self._known[last:end]))
        )
        differ = np.flatnonzero(nodes != self._known_nodes[begin:end])
        if not len(differ):
            return first, nodes[first - begin : last - begin]
        return begin + int(differ[0]), nodes[differ[0] : differ[-1] + 1]

    @property
    def is_taken_up(self) -> bool:
        """Whether behind the last window all went on as known."""
        return self._windows is not None and self._windows.is_taken_up

    def keep_window(self) -> None:
        """Make the sequence with the last window the known one."""
        assert self._windows is not None
        self._windows.keep()
        first, tasks, at, nodes = self._tried
        self._known[first : first + len(tasks)] = tasks
        self._known_parts[first : first + len(tasks)] = self._stretches.parts[tasks].tobytes()
        self._known_nodes[at : at + len(nodes)] = nodes

    def _nodes_of(self, tasks: Array) -> Array:
        """The nodes of whole stretches of a sequence; -1 where nothing runs."""
        nodes = self._of[tasks]
        starts, dones = self._stretches.pairs(tasks)
        nodes[starts] = self._inline[tasks[starts]]
        nodes[dones] = -1
        return nodes


def _inline(start: Node, overheads: Overheads) -> Node:
    """The node of a collective that XLA makes synchronous."""
    gap_ps = round(overheads.gap_us * PS_PER_US)
    return replace(start, kind=KERNEL_NODE, stream=COMPUTE, slot=-1, gap_ps=gap_ps)
