"""The order in which XLA put nodes into a CUDA graph, read from the nodes' numbers.

A graph runs independent branches in any order, or side by side. But XLA adds its nodes in schedule
order, and CUDA numbers them as they are added. A library call is captured into a child graph: it is
a node that runs nothing itself, so its number is missing from a recording, and the nodes inside it
are numbered after all others:

    schedule    copy   dot.1   fusion.1   dot.2   fusion.2
    number       1       2        3         4         5        2 and 4 are not recorded
    inside              6 7                8 9                 memset, nvjet; memset, nvjet
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.profile.events import Array

_HIGHEST = 1 << 62
MOST_UNNAMED = 4
"""own nodes after the last kernel that XLA compiled, at most"""


@dataclass(frozen=True)
class NodeOrder:
    """Events of one graph launch, in the order in which XLA added their nodes."""

    own: Array
    """nodes of the graph itself: rows of events, -1 where a child graph stands"""
    children: Array
    """rows of the events inside child graphs, in the order of the child graphs"""


def is_in_order(node: Array) -> bool:
    """Whether events ran in the order in which their nodes were added.

    `node` is in order of time: the numbers of the graph's own nodes ascend, and so do those inside
    child graphs, which are higher.
    """
    if (np.diff(node) > 0).all():
        return True
    own = node[node < np.maximum.accumulate(node)]
    inside = node[node > np.minimum.accumulate(node[::-1])[::-1]]
    return bool(own.max(initial=0) < inside.min(initial=_HIGHEST))


def node_order(node: Array, is_named: Array, unnamed: int) -> NodeOrder | None:
    """The order of one graph launch's events, by node; None if the numbers don't tell.

    `is_named` marks kernels that XLA compiled, which are never inside child graphs. `unnamed` is
    the number of own nodes after the last of those, such as copies: nothing marks them.
    """
    rows = np.argsort(node, kind="stable")
    number = node[rows]
    if number[0] < 1 or (np.diff(number) == 0).any():
        return None
    named = np.flatnonzero(is_named[rows])
    split = (int(named[-1]) + 1 if len(named) else 0) + unnamed
    if split > len(rows):
        return None
    own = np.full(number[split] - 1 if split < len(rows) else number[-1], -1, np.int64)
    own[number[:split] - 1] = rows[:split]
    return NodeOrder(own, rows[split:])
