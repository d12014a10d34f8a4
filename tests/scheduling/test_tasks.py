"""The tasks of a computation."""

import pytest

from schedules import MACHINE, NOTHING
from slipstream.scheduling.tasks import DONE, KERNEL, LIGHT, START, Tasks, is_topological, tasks_of
from slipstream.simulate.engine import graph_of
from slipstream.simulate.task_graph import READ


@pytest.fixture
def tasks(late) -> Tasks:
    found, estimates = late
    graph = graph_of(found, MACHINE, estimates, frozenset(), NOTHING)
    nodes = {one.instruction.name: one for one in graph.nodes if one.kind != READ}
    return tasks_of(found, found.entry, nodes, {})


def named(tasks: Tasks, *names: str) -> list[int]:
    return [tasks.names.index(name) for name in names]


def test_what_runs_where(tasks):
    kinds = dict(zip(tasks.names, tasks.kinds, strict=True))
    assert kinds["a"] == LIGHT
    assert kinds["g1"] == START and kinds["d1"] == DONE and kinds["k1"] == KERNEL
    (start,), (done,) = named(tasks, "g1"), named(tasks, "d1")
    assert tasks.start_of[done] == start
    assert tasks.collectives == frozenset(named(tasks, "g1", "g2", "g3"))


def test_dependencies_go_through_dones(tasks):
    k1, k2, g2 = named(tasks, "k1", "k2", "g2")
    assert tasks.after[k2] == (k1, g2)
    assert tasks.before[g2] == (k2,)
    assert tasks.after[g2] == ()


def test_chains(tasks):
    g1, k1, k3, g3 = named(tasks, "g1", "k1", "k3", "g3")
    assert (tasks.heads[g1], tasks.tails[g1]) == (0, 70_000)
    assert (tasks.heads[k1], tasks.tails[k3]) == (10_000, 20_000)
    assert tasks.tails[g3] == 30_000


def test_which_sequences_are_possible(tasks):
    own = list(range(len(tasks)))
    assert is_topological(tasks, own)
    assert not is_topological(tasks, own[::-1])
    assert not is_topological(tasks, own[:-1])
    assert not is_topological(tasks, [*own[:-1], own[0]])
