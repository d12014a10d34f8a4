"""Exact schedules of small computations."""

import pytest

from schedules import MACHINE, NOTHING
from slipstream.scheduling import solver
from slipstream.scheduling.memory import BufferUse, peak_bytes
from slipstream.scheduling.tasks import Tasks, tasks_of
from slipstream.simulate.engine import graph_of
from slipstream.simulate.task_graph import READ


@pytest.fixture
def tasks(late) -> Tasks:
    found, estimates = late
    graph = graph_of(found, MACHINE, estimates, frozenset(), NOTHING)
    nodes = {one.instruction.name: one for one in graph.nodes if one.kind != READ}
    return tasks_of(found, found.entry, nodes, {})


def test_the_shortest_schedule(tasks):
    found = solver.solve(tasks, 5.0)
    assert found is not None and found.is_optimal
    # The first gather is exposed, the others run beside kernels.
    assert found.ns == found.bound_ns == 70_000


def test_gathers_that_do_not_fit_together_wait(tasks):
    place = tasks.names.index
    weights = [BufferUse(100, (place(f"g{i}"), place(f"k{i}"))) for i in (1, 2, 3)]
    free = solver.solve(tasks, 5.0, memory=(weights, 200))
    assert free is not None and free.ns == 70_000
    tight = solver.solve(tasks, 5.0, memory=(weights, 100))
    assert tight is not None and tight.ns == 90_000
    assert solver.solve(tasks, 5.0, memory=(weights, 99)) is None


def test_a_window_begins_where_the_one_before_ended(tasks):
    place = tasks.names.index
    part = [place(name) for name in ("g3", "k3")]
    window = solver.Window(
        part, {place("k3"): 30_000}, {place("k3"): 5_000}, {("stream", 1): 4_000}
    )
    found = solver.solve(tasks, 5.0, window=window)
    assert found is not None and found.ns == 55_000
    assert found.begins[place("g3")] >= 4_000


def test_the_most_that_is_alive_at_once():
    buffers = (BufferUse(10, (0, 2)), BufferUse(20, (1, 3)), BufferUse(40, (4,)))
    assert peak_bytes(buffers, range(5)) == 40
    assert peak_bytes(buffers, (0, 2, 1, 3, 4)) == 40
    assert peak_bytes(buffers, (0, 1, 4, 2, 3)) == 70
