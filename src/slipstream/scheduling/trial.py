"""Orders of one computation, simulated: its nodes run by the simulator's native clock.

A loop's turns follow each other, and nothing asynchronous outlives one, so one run is the steady
state. A loop inside the computation counts as one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from slipstream.scheduling.tasks import DONE, KERNEL, PS_PER_NS, START, Tasks
from slipstream.simulate.clock import Clock
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.task_graph import KERNEL as KERNEL_NODE
from slipstream.simulate.task_graph import Node, TaskGraph
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
        self._of = np.full(len(tasks), -1, np.int32)
        """the node of each task; -1 if nothing runs"""
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
        self._streams = [node.stream for node in chosen]
        self._clock = Clock(replace(graph, nodes=chosen), overheads)
        self._windows: WindowClock | None = None

    def times(self, sequence: Sequence[int]) -> list[tuple[int, int, int, int]]:
        """(task, stream, begin, end) of all that runs, in nanoseconds."""
        tasks = np.asarray(sequence, np.int64)
        nodes = self._of[tasks]
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
        nodes = self._of[np.asarray(sequence, np.int64)]
        return -(-self._clock.span_ps(nodes[nodes >= 0]) // PS_PER_NS)

    # Sequences that differ from a known one in a window: only the window is simulated.

    def know(self, sequence: Sequence[int]) -> None:
        """Let the windows that follow be windows of this sequence."""
        self._windows = WindowClock(self._clock, self._of[np.asarray(sequence, np.int64)])

    def span_of_window_ns(self, first: int, window: Sequence[int]) -> int:
        """The span of the known sequence with other tasks from place `first` on."""
        assert self._windows is not None
        nodes = self._of[np.asarray(window, np.int64)]
        return -(-self._windows.span_ps(first, nodes) // PS_PER_NS)

    @property
    def is_taken_up(self) -> bool:
        """Whether behind the last window all went on as known."""
        return self._windows is not None and self._windows.is_taken_up

    def keep_window(self) -> None:
        """Make the sequence with the last window the known one."""
        assert self._windows is not None
        self._windows.keep()
