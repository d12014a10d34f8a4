"""Collectives: sizes, bandwidths, waits and stragglers, with known answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from analyses.pax import both, thunks
from builders import STEP, profile
from slipstream.analyses.collectives import Straggler, algorithm, bus_factor, collectives
from slipstream.analyses.skew import match_collectives
from slipstream.profile.profile import Profile
from slipstream.sources.hlo.reader import program_from_text
from slipstream.sources.load import load

GATHER = program_from_text("""\
HloModule jit_step, is_scheduled=true

ENTRY main {
  p = bf16[1000,1000]{1,0} parameter(0)
  dot.1 = bf16[1000,1000]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT all-gather.1 = bf16[2000,1000]{1,0} all-gather(dot.1), replica_groups={{0,1}}, dimensions={0}
}
""")
SKEW = 500.0


def two_hosts(late: float, groups: str = "{{0,1}}") -> Profile:
    """Six steps on two hosts; the second's clock is ahead, and it comes `late` µs later."""
    program = GATHER
    if groups != "{{0,1}}":
        program = replace(GATHER, computations=_regrouped())
        program = replace(program, entry=program.computations["main"])
    built = profile().with_program(STEP, program)
    for ahead, work in ((0.0, 100.0), (SKEW, 100.0 + late)):
        if ahead:
            built.host("other").device("GPU:1").execution_of()
        for step in range(6):
            built.at(200 * step + ahead).kernel("dot.1", work)
            end = 200 * step + ahead + 100 + late + 20
            us = end - built.devices[-1].at
            built.all_reduce(us, op="all-gather.1").execution_of()
    return built.build()


def _regrouped():
    main = GATHER.computations["main"]
    made = []
    for one in main.instructions:
        if one.collective is not None:
            stated = replace(one.collective, replica_groups=((0, 2), (1, 3)))
            one = replace(one, collective=stated)
        made.append(one)
    return {"main": replace(main, instructions=tuple(made), root=made[-1])}


def test_the_first_waits_for_the_late_one():
    found = collectives(two_hosts(late=30.0))
    (row,) = found.rows
    assert (row.kind, row.bytes, row.group_size, row.groups) == ("all-gather", 4_000_000, 2, 1)
    assert (row.count, row.members_recorded) == (12, 2)
    assert (row.median_us, row.moving_us) == (35.0, 20.0)
    assert row.per_step_us == row.exposed_us == 35.0
    # One of the two waits for 30 µs, the other not at all.
    assert row.wait_us == pytest.approx(15.0)
    assert row.bandwidth == pytest.approx(4e6 / 20e-6)
    assert row.bus_bandwidth == pytest.approx(4e6 / 20e-6 / 2)
    assert row.link_share == pytest.approx(1e11 / 450e9)
    assert found.alignment_us == pytest.approx(0.0, abs=1e-6)
    assert found.stragglers == (
        Straggler("GPU:1", "other", 6, 6, pytest.approx(30.0), 0.0),
        Straggler("GPU:0", "host", 6, 0, 0.0, pytest.approx(30.0)),
    )
    assert found.straggler is found.stragglers[0]
    assert found.notes == ()


def test_no_device_is_late():
    found = collectives(two_hosts(late=0.0))
    assert found.rows[0].wait_us == 0.0
    assert found.straggler is None


def test_what_chance_may_do_is_no_straggler():
    found = collectives(two_hosts(late=30.0))
    rarely = replace(found, stragglers=tuple(replace(s, meetings=11) for s in found.stragglers))
    assert rarely.straggler is None
    many = tuple(replace(s, meetings=3000, last=1400) for s in found.stragglers)
    assert replace(found, stragglers=many).straggler is None
    often = (replace(many[0], last=1600), many[1])
    assert replace(found, stragglers=often, steps=3000).straggler is often[0]


def test_the_difference_of_clocks_is_found():
    met = match_collectives(two_hosts(late=30.0))
    assert met.offsets_ps.tolist() == [0.0, SKEW * 1e6]
    assert met.spread_ps == 0.0
    assert len(met) == 6


def test_of_several_groups_the_members_are_not_known():
    found = collectives(two_hosts(late=30.0, groups="apart"))
    (row,) = found.rows
    assert (row.wait_us, row.groups, found.stragglers) == (None, 2, ())
    assert found.straggler is None
    assert "1 collectives run in several groups" in found.notes[0]


def test_executions_that_only_one_recorded_are_found_by_their_times():
    built = profile().with_program(STEP, GATHER)
    for first in (0, 1):
        if first:
            built.host("other").device("GPU:1").execution_of()
        for step in range(first, 4):
            built.at(200 * step).kernel("dot.1", 100 + step)
            built.all_reduce(20, op="all-gather.1").execution_of()
    met = match_collectives(built.build())
    assert len(met) == 3
    assert (np.diff(met.starts, axis=1) == 0).all()
    doubtful = match_collectives(built.warn("clock-skew").build())
    assert len(doubtful) == 0
    assert "ran 3 to 4 times" in doubtful.skipped[0]


def test_hosts_that_never_meet_have_no_common_clock():
    text = """\
HloModule jit_step, is_scheduled=true

ENTRY main {
  p = f32[8]{0} parameter(0)
  all-gather.1 = f32[16]{0} all-gather(p), dimensions={0}
  ROOT all-gather.2 = f32[16]{0} all-gather(p), dimensions={0}
}
"""
    built = profile().with_program(STEP, program_from_text(text))
    for device in range(4):
        if device:
            built.host(f"host {device}").device(f"GPU:{device}").execution_of()
        for _ in range(2):
            built.all_reduce(20, op=f"all-gather.{1 + device // 2}").execution_of()
    met = match_collectives(built.build())
    assert met.rows[:, 2:].max() == -1
    assert len(met) == 2
    assert met.skipped == (
        "2 collectives ran on hosts that share none with host, so their clocks can't be aligned",
    )
    assert len(collectives(built.build()).stragglers) == 2


@given(
    st.lists(
        st.tuples(st.integers(1, 50), st.integers(1, 50), st.integers(1, 30)),
        min_size=1,
        max_size=8,
    ),
    st.integers(-1000, 1000),
)
def test_waits_are_those_of_a_plain_count(steps, ahead):
    """Each step: when each of two devices comes, and how long moving the bytes takes."""
    built = profile().with_program(STEP, GATHER)
    for device in (0, 1):
        if device:
            built.host("other").device("GPU:1").execution_of()
        for number, (*came, move) in enumerate(steps):
            zero = 2000 + 200 * number + (ahead if device else 0)
            built.at(zero).kernel("dot.1", came[device])
            built.all_reduce(max(came) + move - came[device], op="all-gather.1").execution_of()
    met = match_collectives(built.build())
    waited = {
        (number, device): (max(came) - came[device]) * 1e6
        for number, (*came, _) in enumerate(steps)
        for device in (0, 1)
    }
    numbers = built.build().steps.of_events(built.build())
    for meeting, row in enumerate(met.rows.tolist()):
        number = int(built.build().events["execution"][row[0]])
        assert [waited[number, device] for device in (0, 1)] == met.waits[meeting].tolist()
    assert len(met) <= len(steps)
    assert (numbers >= 0).all()


@pytest.mark.parametrize(
    ("kernel", "known"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "not tree"),
        ("ncclDevKernel_AllReduce_Sum_bf16_TREE_LL(ncclDevComm*)", "tree"),
        ("ncclDevKernel_AllGather_RING_LL(ncclDevComm*)", ""),
        ("ncclDevKernel_AllReduce_Sum_f32_NVLS_SIMPLE(x)", "nvls simple"),
        ("ncclKernel_ReduceScatter_Sum_half_RING_LL128", "ring ll128"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", ""),
        ("all-reduce.1", ""),
    ],
)
def test_what_a_kernel_name_tells(kernel, known):
    assert algorithm(kernel) == known


def test_bus_factors_are_those_of_nccl_tests():
    assert bus_factor("all-reduce", 4) == 1.5
    assert bus_factor("all-gather", 4) == bus_factor("reduce-scatter", 4) == 0.75
    assert bus_factor("collective-permute", 4) == 1.0


def test_a_recording_of_one_process(data: Path):
    found = collectives(load(data / "nccl2_lhs_r0.xplane.pb.gz"))
    by_name = {row.instruction: row for row in found.rows}
    assert len(by_name) == 35
    gather = by_name["all-gather.9.1"]
    assert (gather.kind, gather.bytes, gather.group_size) == ("all-gather", 268_435_456, 2)
    # Sockets over the loopback device: far from what NVLink could do.
    assert gather.bus_bandwidth == pytest.approx(1.86e9, rel=0.01)
    assert gather.link_share == pytest.approx(0.0041, rel=0.02)
    assert {row.wait_us for row in found.rows} == {None}
    assert by_name["all-reduce.9"].algorithm == "not tree"


# Two processes of four, by a plain reading of the archives.


def test_waits_across_the_two_processes_of_pax(external: Path):
    found = collectives(both(external))
    device = [
        {
            (t.name, t.execution, t.turn): t
            for t in thunks(external, number)
            if t.is_communication and t.execution > 0
        }
        for number in (0, 1)
    ]
    # The first process drops no execution, so that what they share is what the second has.
    shared = [key for key in device[1] if key in device[0]]
    ends = [device[1][key].end - device[0][key].end for key in shared]
    offset = float(np.median(ends))
    waits: dict[str, list[float]] = {}
    for key in shared:
        first, second = device[0][key], device[1][key]
        late = second.start - offset - first.start
        for own, wait in ((first, late), (second, -late)):
            waits.setdefault(key[0], []).append(float(np.clip(wait, 0, own.end - own.start)))
    for row in found.rows:
        # A step of a device has one execution of each.
        assert row.wait_us == pytest.approx(np.mean(waits[row.instruction]) / 1e3, rel=1e-6)
        shortest = [
            min(d[key].end - d[key].start for d in device)
            for key in shared
            if key[0] == row.instruction
        ]
        assert row.moving_us >= min(shortest) / 1e3
    assert found.alignment_us == pytest.approx(0.96, abs=0.01)
    assert match_collectives(both(external)).offsets_ps[1] / 1e3 == pytest.approx(offset)
    assert found.notes == (
        "2 of 4 devices were recorded: waits for the others count as time in which bytes move",
    )


def test_the_straggler_of_pax(external: Path):
    found = collectives(both(external))
    assert found.model == "NVIDIA A100-SXM4-40GB"
    assert found.link_bandwidth == 300e9
    late = found.straggler
    assert late is not None
    assert (late.device, late.meetings, late.last) == ("GPU:0", 92, 64)
    # What one waits for, the other causes.
    first, second = found.stragglers
    assert first.caused_us >= second.waited_us > 0
    assert all(0 < row.link_share < 1 for row in found.rows if row.link_share is not None)
