"""What must hold for every simulated timeline: no link carries more than it can, in any window."""

import numpy as np

from slipstream.machines.links import LINKS
from slipstream.simulate.clock import NodeTimes
from slipstream.simulate.link_use import fullest_window
from slipstream.simulate.task_graph import TaskGraph

ROUNDING_PS = 2
"""starts and ends are whole picoseconds"""


def check_links(graph: TaskGraph, times: NodeTimes) -> None:
    """Fail if the operations within some window need more of a link than the window is long."""
    shares = np.zeros((len(graph.nodes), len(LINKS)))
    for row, node in zip(shares, graph.nodes, strict=True):
        for link, share in node.links:
            row[link] = share * node.duration_ps
    for link, name in enumerate(LINKS):
        busy = np.maximum(shares[graph.order, link] - ROUNDING_PS, 0)
        rows = np.flatnonzero((busy > 0) & (times.start_ps >= 0))
        if len(rows):
            window = fullest_window(times.start_ps[rows], times.end_ps[rows], busy[rows])
            assert window.full <= 1 + 1e-9, f"{name}: {window}"
