"""From times to sequences."""

import pytest

from schedules import MACHINE, NOTHING
from slipstream.scheduling.sequence import apart, sequence_of
from slipstream.scheduling.tasks import Tasks, is_topological, tasks_of
from slipstream.simulate.engine import graph_of
from slipstream.simulate.task_graph import READ


@pytest.fixture
def tasks(late) -> Tasks:
    found, estimates = late
    graph = graph_of(found, MACHINE, estimates, frozenset(), NOTHING)
    nodes = {one.instruction.name: one for one in graph.nodes if one.kind != READ}
    return tasks_of(found, found.entry, nodes, {})


def times(tasks: Tasks, **us: int) -> dict[int, int]:
    return {tasks.names.index(name): 1000 * time for name, time in us.items()}


def listed(tasks: Tasks, sequence: list[int]) -> list[str]:
    assert is_topological(tasks, sequence)
    return [tasks.names[task] for task in sequence]


HIDDEN = {"g1": 0, "k1": 10, "g2": 10, "g3": 20, "k2": 30, "k3": 50}


def test_starts_are_listed_early_and_dones_where_they_are_needed(tasks):
    found = sequence_of(tasks, times(tasks, **HIDDEN), at_once=3)
    assert listed(tasks, found) == ["a", "g2", "g3", "g1", "d1", "k1", "d2", "k2", "d3", "k3"]


def test_what_is_waited_for_at_once_goes_before_what_begins_with_it(tasks):
    found = sequence_of(tasks, times(tasks, **HIDDEN), at_once=1)
    assert listed(tasks, found) == ["a", "g1", "d1", "g2", "g3", "k1", "d2", "k2", "d3", "k3"]


def test_without_early_a_start_is_listed_when_it_begins(tasks):
    found = listed(tasks, sequence_of(tasks, times(tasks, **HIDDEN), early=False, at_once=3))
    assert found.index("g3") > found.index("k1")


def test_a_done_that_frees_is_listed_once_its_operation_has_ended(tasks):
    frees = sequence_of(tasks, times(tasks, **HIDDEN), early=False, frees=True, at_once=3)
    found = listed(tasks, frees)
    assert found.index("d3") < found.index("k2")  # ends at 30, as k2 begins


def test_what_xla_makes_synchronous_waits_for_what_flies(tasks):
    place = tasks.names.index
    # g2 is waited for at once, while g3 flies: XLA would run the two side by side.
    order = ("a", "g3", "g1", "d1", "k1", "g2", "d2", "k2", "d3", "k3")
    found = listed(tasks, apart(tasks, [place(name) for name in order], at_once=1))
    assert found == ["a", "g1", "d1", "g3", "k1", "d3", "g2", "d2", "k2", "k3"]
    allowed = apart(tasks, [place(name) for name in order], at_once=2)
    assert listed(tasks, allowed) == list(order)
