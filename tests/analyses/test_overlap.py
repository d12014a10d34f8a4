"""Exposed communication and copies: known answers, a plain twin, and nsys-jax's definition."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyses.pax import STEP as PAX_STEP
from analyses.pax import Thunk, both, thunks
from builders import STEP, profile
from slipstream.analyses.exposures import exposures
from slipstream.analyses.overlap import (
    Hider,
    Overlapped,
    PhaseOverlap,
    StepOverlap,
    overlap,
)
from slipstream.analyses.summary import summary
from slipstream.profile.semantics.layers import rolled_description
from slipstream.sources.load import load


def test_the_whole_overlap_of_two_steps():
    built = profile(known=False)
    for at in (0, 100):
        built.at(at).kernel("dot.1", 40).all_reduce(30, hidden=10).copy(20, hidden=5).execution_of()
    found = overlap(built.build())
    assert found.steps == 2
    assert found.per_step == summary(built.build()).per_step
    assert found.by_step == (
        StepOverlap("GPU:0", "host", 0, 100.0, 30.0, 20.0, 20.0, 15.0),
        StepOverlap("GPU:0", "host", 1, 75.0, 30.0, 20.0, 20.0, 15.0),
    )
    assert found.phases == (PhaseOverlap("other", 30.0, 20.0, 20.0, 15.0),)
    assert found.ops == (
        Overlapped(
            STEP, "all-reduce.1", "communication", 2, None, 30.0, 20.0, 10.0,
            category="communication", hidden_by=(Hider("dot.1", 10.0),), per_step_count=1.0,
        ),
        # The copy runs beside the last of the all-reduce, not beside compute.
        Overlapped(
            STEP, "copy-start.1", "copy", 2, None, 20.0, 15.0, 5.0, category="host copy",
            per_step_count=1.0,
        ),
    )  # fmt: skip
    assert [op.hidden_share for op in found.ops] == [pytest.approx(1 / 3), 0.25]
    assert found.collectives == found.ops[:1]
    assert found.copies == found.ops[1:]


def test_a_profile_with_its_program_says_what_and_how_much():
    built = profile().kernel("dot.1", 40).all_reduce(30, hidden=10)
    (op,) = overlap(built.build()).ops
    assert (op.bytes, op.category, op.hidden_by[0].description) == (32, "all-reduce", "x @ y")


def test_of_two_kernels_at_once_the_later_hides():
    built = profile(known=False).kernel("a.1", 40).at(20)
    built.kernel("b.2", 10, lane="Stream #15(Compute)").at(0).all_reduce(50)
    (op,) = overlap(built.build()).ops
    assert op.exposed_us == 10
    assert op.hidden_by == (Hider("a.1", 30.0), Hider("b.2", 10.0))


def test_only_the_steps_count_unless_all_is_asked_for():
    built = profile(known=False).all_reduce(30)
    for _ in range(2):
        built.execution_of("jit_big(2)").kernel("dot.1", 500).all_reduce(20, op="all-reduce.2")
    assert [op.instruction for op in overlap(built.build()).ops] == ["all-reduce.2"]
    everything = overlap(built.build(), whole=True)
    assert everything.steps == 0
    assert [(op.instruction, op.per_step_us) for op in everything.ops] == [
        ("all-reduce.2", 40.0),
        ("all-reduce.1", 30.0),
    ]


def test_equal_collectives_of_unrolled_layers_are_one_group(data: Path):
    found = overlap(load(data / "nccl2_lhs_r0.xplane.pb.gz"))
    (merged,) = [
        one for one in found.groups if one.bytes == 134217728 and one.category == "all-to-all"
    ]
    members = [op for op in found.ops if op.instruction in merged.instructions]
    assert len(members) == len(merged.instructions) == 5
    assert merged.instruction == members[0].instruction == "all-to-all.1.1"
    assert {op.source for op in members} == {merged.source}
    for name in ("count", "per_step_count", "per_step_us", "exposed_us", "hidden_us"):
        assert getattr(merged, name) == pytest.approx(sum(getattr(op, name) for op in members))
        everything = sum(getattr(op, name) for op in found.ops)
        assert sum(getattr(one, name) for one in found.groups) == pytest.approx(everything)
    exposed = [one.exposed_us for one in found.groups]
    assert exposed == sorted(exposed, reverse=True)


def test_equal_kernels_that_hide_equal_collectives_are_one(data: Path):
    found = overlap(load(data / "nccl2_lhs_r0.xplane.pb.gz"))
    for merged in found.groups:
        times: dict[tuple[str, str], float] = {}
        for op in found.ops:
            if op.instruction in merged.instructions:
                for one in op.hidden_by:
                    key = (rolled_description(one.description), one.source)
                    times[key] = times.get(key, 0.0) + one.per_step_us
        longest = sorted(times.values(), reverse=True)[:5]
        assert [one.per_step_us for one in merged.hidden_by] == pytest.approx(longest)


def test_collectives_of_unknown_programs_are_not_equal():
    built = profile(known=False).all_reduce(30).all_reduce(20, op="all-reduce.2")
    found = overlap(built.build())
    assert [one.instructions for one in found.groups] == [("all-reduce.1",), ("all-reduce.2",)]


def test_nothing_at_all():
    found = overlap(profile().build())
    assert (found.ops, found.phases, found.by_step) == ((), (), ())


@st.composite
def events(draw: st.DrawFn) -> list[tuple[str, int, int, int, int]]:
    """(kind, lane, device, start, length) in whole µs."""
    kind = st.sampled_from(("dot", "all-reduce", "copy-start"))
    one = st.tuples(kind, st.integers(0, 2), st.integers(0, 1), st.integers(0, 40))
    return [(*draw(one), draw(st.integers(1, 15))) for _ in range(draw(st.integers(1, 14)))]


@given(events())
def test_exposed_time_is_that_of_a_plain_count(made):
    built = profile(known=False).device("GPU:1").execution_of()
    covered = defaultdict(set)
    for number, (kind, _, device, start, length) in enumerate(made):
        built.at(start).kernel(f"{kind}.{number}", length, name=_kernel(kind))
        covered[kind, device].update(range(start, start + length))
    # Lanes are made for the last device: say which device each event was meant for.
    found = _on_their_devices(built, made)
    result = exposures(found, whole=True)
    times = dict(zip(result.row.tolist(), result.exposed_ps.tolist(), strict=True))
    told = {op.instruction: op for op in overlap(found, whole=True).ops}
    devices = len({device for _, _, device, _, _ in made})
    for row, (kind, _, device, start, length) in enumerate(made):
        own = set(range(start, start + length))
        computed = own & covered["dot", device]
        if kind == "dot":
            assert row not in times
            continue
        hidden = computed | (own & covered["all-reduce", device] if kind != "all-reduce" else set())
        assert times[row] == (length - len(hidden)) * 10**6
        op = told[f"{kind}.{row}"]
        assert round(op.exposed_us * devices) == length - len(hidden)
        beside = Counter(_last_to_begin(made, device, t) for t in computed)
        listed = [(h.instruction, round(h.per_step_us * devices)) for h in op.hidden_by]
        assert [us for _, us in listed] == sorted(beside.values(), reverse=True)[:5]
        assert all(beside[name] == us for name, us in listed)


def _last_to_begin(made: list[tuple[str, int, int, int, int]], device: int, time: int) -> str:
    """Of the compute that runs on a device, the last to begin; of those, the shortest, the last.

    Events that begin together come in the order in which they were recorded.
    """
    running = [
        (start, -length, row)
        for row, (kind, _, where, start, length) in enumerate(made)
        if kind == "dot" and where == device and start <= time < start + length
    ]
    return f"dot.{max(running)[2]}"


def _kernel(kind: str) -> str:
    return {"dot": "k", "all-reduce": "ncclDevKernel_AllReduce", "copy-start": "MemcpyD2H"}[kind]


def _on_their_devices(built, made):
    from dataclasses import replace

    import numpy as np

    from slipstream.profile.profile import Lane

    found = built.build()
    lanes = tuple(Lane(f"{lane}", 0, device) for device in (0, 1) for lane in range(3))
    number = np.array([3 * device + lane for _, lane, device, _, _ in made], np.int32)
    return replace(found, lanes=lanes, events=found.events.replace(lane=number))


def test_recordings_agree_with_their_summary(data: Path):
    for name in ("nccl2_lhs_r0", "off_default", "off_lhs_nocb"):
        found = overlap(load(data / f"{name}.xplane.pb.gz"))
        steps = found.by_step
        # One collective at a time, so that their exposed times add up to the steps'.
        exposed = sum(op.exposed_us for op in found.collectives)
        mean = sum(step.exposed_communication_us for step in steps) / len(steps)
        assert exposed == pytest.approx(mean, rel=1e-3)
        for op in found.collectives:
            assert sum(h.per_step_us for h in op.hidden_by) <= op.hidden_us * (1 + 1e-9)


# nsys-jax calls a collective hidden while any instruction that does not communicate runs on its
# device, and takes that from its duration (`_calculate_overlap` of nsys_jax/data_loaders.py in
# github.com/NVIDIA/JAX-Toolbox).  This is that definition, plainly.


def exposed_by_nsys_jax(found: tuple[Thunk, ...]) -> dict[tuple[str, int], int]:
    computing = [one for one in found if not one.is_communication]
    exposed: dict[tuple[str, int], int] = defaultdict(int)
    for one in found:
        if one.is_communication:
            both = (min(c.end, one.end) - max(c.start, one.start) for c in computing)
            hidden = sum(time for time in both if time > 0)
            exposed[one.name, one.execution] += one.end - one.start - hidden
    return dict(exposed)


def test_exposed_communication_is_what_nsys_jax_calls_so(external: Path):
    found = both(external)
    events, result = found.events, exposures(found, whole=True)
    for device in (0, 1):
        ours: dict[tuple[str, int], int] = defaultdict(int)
        for row, ps in zip(result.row.tolist(), result.exposed_ps.tolist(), strict=True):
            if found.event_devices[row] == device and events.text("program", row) == PAX_STEP:
                key = (events.text("instruction", row), int(events["execution"][row]))
                ours[key] += ps // 1000
        assert ours == exposed_by_nsys_jax(thunks(external, device))


def test_overlap_of_two_processes(external: Path):
    found = overlap(both(external))
    assert found.steps == 5
    assert len(found.collectives) == 23
    assert not found.copies
    first = found.collectives[0]
    assert (first.instruction, first.bytes) == ("reduce-scatter.131", 70_889_472)
    assert first.exposed_us == pytest.approx(2371, abs=1)
    assert {step.host for step in found.by_step} == {host.name for host in both(external).hosts}
