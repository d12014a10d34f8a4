"""The order of a CUDA graph's nodes, from their numbers."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.profile.attribution.graph_nodes import is_in_order, node_order

NAMED, LIBRARY = True, False


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([1, 2, 3], True),
        ([5, 6, 2, 7, 8, 4], True),  # 1 and 3 are child graphs with 5, 6 and 7, 8 inside
        ([1, 3, 2], True),  # 3 may be inside a child graph
        ([3, 2, 1], False),
        ([7, 8, 2, 5, 6, 4], False),
        ([0, 0], True),
    ],
)
def test_whether_nodes_ran_in_order(nodes: list[int], expected: bool) -> None:
    assert is_in_order(np.array(nodes)) is expected


def test_nodes_inside_child_graphs_come_after_all_others() -> None:
    """Nodes 1 and 3 are child graphs: library calls of two kernels each."""
    node = np.array([4, 7, 8, 2, 5, 6])
    named = np.array([NAMED, LIBRARY, LIBRARY, NAMED, LIBRARY, LIBRARY])
    found = node_order(node, named, 0)
    assert found is not None
    assert found.own.tolist() == [-1, 3, -1, 0]
    assert found.children.tolist() == [4, 5, 1, 2]


def test_own_nodes_may_follow_the_last_kernel_that_xla_compiled() -> None:
    """A child graph, a kernel, a copy; then what is inside the child graph."""
    node = np.array([3, 4, 2])
    named = np.array([LIBRARY, LIBRARY, NAMED])
    found = node_order(node, named, 1)
    assert found is not None
    assert found.own.tolist() == [-1, 2, 0]
    assert found.children.tolist() == [1]
    assert node_order(node, named, 3) is None


def test_numbers_that_repeat_tell_nothing() -> None:
    assert node_order(np.array([1, 1]), np.array([NAMED, NAMED]), 0) is None
    assert node_order(np.array([0, 1]), np.array([NAMED, NAMED]), 0) is None
