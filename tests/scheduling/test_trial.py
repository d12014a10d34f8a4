"""A collective with nothing between its start and its done takes as long as XLA runs it."""

import pytest

from schedules import MACHINE, costs, gather, gathered, kernel, program
from slipstream.profile.program import Program
from slipstream.scheduling.tasks import tasks_of
from slipstream.scheduling.trial import Trial
from slipstream.simulate.clock import run
from slipstream.simulate.engine import graph_of
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.streams import COMPUTE
from slipstream.simulate.task_graph import TaskGraph

OVERHEADS = Overheads()
TIMES = costs("modelled", k1=20, g=30, k2=10, f=15)
JOIN = 'ROOT %k2 = f32[8] custom-call(%k1, %d), custom_call_target="f"'


def graph(found: Program) -> TaskGraph:
    return graph_of(found, MACHINE, TIMES, frozenset(), OVERHEADS)


def trial(found: Program) -> Trial:
    made = graph(found)
    nodes = {one.instruction.name: one for one in made.nodes}
    return Trial(tasks_of(found, found.entry, nodes, {}), made, nodes, {}, OVERHEADS)


def compiled_ns(*lines: str) -> int:
    """The simulated time of a program as XLA compiled it."""
    return -(-int(run(graph(program(*lines)), OVERHEADS).end_ps.max()) // 1000)


def lines(is_sync: bool) -> tuple[str, ...]:
    return kernel("k1", "a"), gather("g", "a", sync=is_sync), gathered("d", "g"), JOIN


AROUND = (gather("g", "a"), kernel("k1", "a"), gathered("d", "g"), JOIN)


def test_a_synchronous_collective_is_a_kernel_as_in_the_compiled_program():
    found = trial(program(*lines(is_sync=False)))
    assert found.span_ns(range(5)) == compiled_ns(*lines(is_sync=True))
    assert found.span_ns(range(5)) < compiled_ns(*lines(is_sync=False))  # no wake-up
    assert {stream for _, stream, _, _ in found.times(range(5))} == {COMPUTE}


def test_a_kernel_between_start_and_done_makes_it_asynchronous():
    found = trial(program(*AROUND))
    assert found.span_ns(range(5)) == compiled_ns(*AROUND)
    assert {stream for _, stream, _, _ in found.times(range(5))} != {COMPUTE}


@pytest.mark.parametrize("before", ["around", "beside"])
def test_a_window_changes_pairs_that_are_not_in_it(before):
    around, beside = [0, 1, 2, 3, 4], [0, 2, 1, 3, 4]  # a g k1 d k2; a k1 g d k2
    found = trial(program(*AROUND))
    behind = [0, 1, 3, 2, 4]  # a g d k1 k2
    known = around if before == "around" else beside
    found.know(known)
    for changed in (beside, around, behind, around):
        here = next((i for i in range(5) if known[i] != changed[i]), 0)
        assert found.span_of_window_ns(here, changed[here:4]) == found.span_ns(changed)
        found.keep_window()
        known = changed
    # `k1` and the done change places: the start, outside of this window, is a kernel then.
    assert found.span_of_window_ns(2, [3, 2]) == found.span_ns(behind)
    assert found.span_ns(behind) != found.span_ns(around)


def test_other_collectives_between_start_and_done_do_not_count_and_sends_do():
    other = (gather("g", "a"), gather("f", "a"), gathered("d", "g"), gathered("e", "f"))
    used = 'ROOT %k2 = f32[8] custom-call(%d, %e), custom_call_target="f"'
    found = trial(program(*other, used))
    assert {stream for _, stream, _, _ in found.times(range(6))} == {COMPUTE}
    sends = (
        "%token = token[] after-all()",
        gather("g", "a"),
        "%s = (f32[8], u32[], token[]) send(%a, %token), channel_id=2",
        "%t = token[] send-done(%s), channel_id=2",
        gathered("d", "g"),
        'ROOT %k2 = f32[8] custom-call(%d), custom_call_target="f"',
    )
    found = trial(program(*sends))
    streams = {task: stream for task, stream, _, _ in found.times(range(7))}
    assert streams[2] != COMPUTE  # the gather
    assert streams[3] != COMPUTE  # the send
