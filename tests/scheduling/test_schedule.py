"""`schedule`: orders of whole programs."""

import pytest

from schedules import MACHINE, costs, gather, gathered, kernel, program
from slipstream.errors import BadInput
from slipstream.machines.topology import machine
from slipstream.scheduling import solver
from slipstream.scheduling.comparison import schedule
from slipstream.scheduling.schedule import searched
from slipstream.simulate.engine import simulation

STATE = "(s32[], f32[8])"
LOOP = f"""
%cond (c: {STATE}) -> pred[] {{
  %c = {STATE} parameter(0)
  ROOT %t = pred[] constant(true)
}}

%body (p: {STATE}) -> {STATE} {{
  %p = {STATE} parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8] get-tuple-element(%p), index=1
  %k1 = f32[8] negate(%x)
  {gather("g", "x")}
  {gathered("d", "g")}
  %k2 = f32[8] custom-call(%k1, %d), custom_call_target="f"
  ROOT %r = {STATE} tuple(%i, %k2)
}}
"""


def spans(result):
    return {one.name: (one.xla_ns, one.found.ns) for one in result.computations}


def test_gathers_run_beside_the_kernels_before_them(late):
    found, estimates = late
    result = searched(found, MACHINE, estimates=estimates, spare_bytes=10**6, seconds=5)
    ordered = result.order.applied(found)
    assert [one.name for one in found.entry.instructions] != list(result.order.sequences["main"])
    before, after = (
        simulation(one, MACHINE, estimates=estimates).profile.events for one in (found, ordered)
    )
    ends = [
        int((one["start_ps"][:] + one["duration_ps"][:]).max()) / 1e6 for one in (before, after)
    ]
    assert ends[0] - ends[1] >= 20  # two of three gathers, and the waits for them


def test_without_the_solver_too(late, monkeypatch):
    found, estimates = late
    with_it = searched(found, MACHINE, estimates=estimates, spare_bytes=10**6, seconds=5)
    monkeypatch.setattr(solver, "is_installed", lambda: False)
    without = searched(found, MACHINE, estimates=estimates, spare_bytes=10**6, seconds=5)
    assert spans(without)["main"][1] == pytest.approx(spans(with_it)["main"][1], rel=0.02)


def test_no_more_memory_than_xla_unless_there_is_some_to_spare(late):
    found, estimates = late
    tight = searched(found, MACHINE, estimates=estimates, seconds=5)
    spare = searched(found, MACHINE, estimates=estimates, spare_bytes=64, seconds=5)
    (own,), (more,) = tight.computations, spare.computations
    assert own.found.bytes == 128 < more.found.bytes <= 192
    assert more.found.ns < own.found.ns <= own.xla_ns


def test_a_limit_that_no_order_keeps(late):
    found, estimates = late
    with pytest.raises(
        BadInput, match=r"no order of main .* less than 10 B; XLA's take 128 B.*--memory"
    ):
        searched(found, MACHINE, estimates=estimates, spare_bytes=-118, seconds=1)


def test_a_loop_counts_as_all_its_turns():
    turns = 'backend_config={"known_trip_count":{"n":"4"}}'
    found = program(
        f"%i0 = s32[] constant(0)\n  %s = {STATE} tuple(%i0, %a)",
        f"%w = {STATE} while(%s), condition=%cond, body=%body, {turns}",
        "%y = f32[8] get-tuple-element(%w), index=1",
        kernel("end", "y", root=True),
        others=LOOP,
    )
    estimates = costs(k1=30, g=20, k2=10, end=5)
    result = searched(found, MACHINE, estimates=estimates, spare_bytes=10**6, seconds=5)
    xla, ours = spans(result)["body"]
    assert xla - ours == pytest.approx(20_000, abs=12_000)
    assert list(result.order.sequences) == ["body"]
    assert spans(result)["main"][1] >= 4 * ours
    first = result.order.sequences["body"]
    assert first.index("g") < first.index("k1")


def test_nothing_asynchronous_leaves_nothing_to_order():
    found = program(kernel("k1", "a"), kernel("k2", "k1", root=True))
    result = searched(found, MACHINE, estimates=costs(k1=1, k2=1))
    assert result.order.sequences == {}


def test_tpus_take_no_order(late):
    with pytest.raises(BadInput, match="XLA:TPU takes no order; expected GPUs"):
        schedule(late[0], machine("v5e-16"))


def test_an_order_of_a_program_needs_no_more_memory(late):
    found, _ = late
    assert schedule(found, "2xH200", seconds=1).fingerprint == found.fingerprint


def test_less_memory_than_xla_takes_a_slower_order(early):
    found, estimates = early
    (own,) = searched(found, MACHINE, estimates=estimates, seconds=1).computations
    (less,) = searched(found, MACHINE, estimates=estimates, spare_bytes=-64, seconds=1).computations
    assert less.found.bytes <= own.found.bytes - 64
    assert less.found.ns > own.found.ns


def test_the_order_that_xla_makes_with_costs_is_an_order_too(late):
    found, estimates = late
    first = searched(found, MACHINE, estimates=estimates, spare_bytes=10**6, seconds=5)
    known = first.order.applied(found)
    again = searched(
        found, MACHINE, estimates=estimates, known=[known], spare_bytes=10**6, seconds=0
    )
    assert again.order.sequences == first.order.sequences
