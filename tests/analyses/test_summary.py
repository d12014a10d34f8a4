"""Where the step went: whole summaries of small profiles."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import PS, STEP, profile, space
from slipstream.analyses.ops import Op
from slipstream.analyses.summary import (
    TOP,
    DeviceSummary,
    ProgramSummary,
    StepTimes,
    Summary,
    summary,
)
from slipstream.profile.profile import ProfileWarning
from slipstream.profile.timeline.kinds import kinds
from slipstream.sources.load import load


def test_the_whole_summary_of_two_steps():
    built = profile().warn("odd", "something is odd")
    for at in (0, 100):
        built.at(at).kernel("dot.1", 40).all_reduce(30, hidden=10).copy(20, hidden=5).execution_of()
    found = replace(built.build(), hosts=(replace(built.hosts[0], versions={"jax_version": "1"}),))
    result = summary(found)
    assert [one.instructions for one in result.top_groups] == [
        (one.instruction,) for one in result.top
    ]
    assert replace(result, top_groups=()) == Summary(
        hosts=("host",),
        versions={"jax": "1"},
        devices=(DeviceSummary("GPU:0", "host", "NVIDIA H200", 6, 150.0),),
        programs=(ProgramSummary(STEP, None, 2, 4, 180.0, False),),
        step_count=2,
        step_median_us=87.5,
        step_basis="executions",
        step_rule=f"executions of {STEP}, the program with the most device time",
        # The first step lasts 100 µs, until the second begins, and the second 75 µs.
        per_step=StepTimes(
            wall_us=87.5,
            compute_us=40.0,
            communication_us=30.0,
            exposed_communication_us=20.0,
            copy_us=20.0,
            exposed_copy_us=15.0,
            idle_us=12.5,
            unattributed_us=0.0,
        ),
        phases_us={"other": 90.0},
        top=(
            Op(STEP, "dot.1", 2, 80.0, 40.0, 80 / 180, "other", "matmul", description="x @ y",
               per_step_count=1.0, shapes="f32[8], f32[8] → f32[8]"),
            Op(
                STEP, "all-reduce.1", 2, 60.0, 30.0, 60 / 180, "other", "all-reduce",
                description="all-reduce 32 B", per_step_count=1.0, shapes="f32[8] → f32[8]",
            ),
            Op(
                STEP, "copy-start.1", 2, 40.0, 20.0, 40 / 180, "other", "data movement",
                description="copy 32 B", per_step_count=1.0, shapes="f32[8] → f32[8]",
            ),
        ),
        warnings=(ProfileWarning("odd", "something is odd"),),
    )  # fmt: skip


def per_step(built) -> StepTimes:
    return summary(built.build()).per_step


def test_communication_behind_compute_costs_nothing():
    times = per_step(profile().kernel("dot.1", 50).all_reduce(30, hidden=30))
    assert (times.communication_us, times.exposed_communication_us) == (30, 0)
    assert (times.wall_us, times.idle_us) == (50, 0)


def test_copies_hide_behind_compute_and_behind_communication():
    times = per_step(profile().kernel("dot.1", 50).all_reduce(30).copy(40, hidden=35))
    assert times == StepTimes(
        wall_us=85,
        compute_us=50,
        communication_us=30,
        exposed_communication_us=30,
        copy_us=40,
        exposed_copy_us=5,
        idle_us=0,
        unattributed_us=0,
    )


def test_streams_that_overlap_are_not_counted_twice():
    built = profile().kernel("dot.1", 50)
    built.kernel("dot.2", 40, lane="Stream #15(Compute)", hidden=30)
    times = per_step(built)
    assert (times.wall_us, times.compute_us, times.idle_us) == (60, 60, 0)


def test_time_that_fits_no_instruction():
    built = profile().kernel("dot.1", 50).kernel("?", 10, instruction="").idle(5)
    times = per_step(built.kernel("dot.2", 1))
    assert (times.unattributed_us, times.compute_us, times.idle_us) == (10, 61, 5)


def test_a_step_is_the_median_over_steps_and_devices():
    built = profile()
    for device, spans in enumerate(((10, 20, 30), (10, 20, 40))):
        if device:
            built.device("GPU:1").execution_of()
        for number, span in enumerate(spans):
            built.at(100 * number).kernel("dot.1", span).execution_of()
    times = per_step(built)
    assert times.compute_us == 20
    assert times.wall_us == 100


def test_no_program_and_no_events():
    empty = summary(profile().build())
    assert (empty.step_count, empty.step_basis, empty.top) == (0, "recording", ())
    assert empty.per_step == StepTimes(*(0.0,) * 8)
    assert empty.phases_us == {}
    assert empty.devices == (DeviceSummary("GPU:0", "host", "NVIDIA H200", 0, 0.0),)


def test_a_profile_without_its_programs():
    built = profile(known=False).kernel("dot.1", 20, "gemm").all_reduce(10)
    found = summary(built.build())
    assert found.programs == (ProgramSummary(STEP, None, 1, None, 30.0, False),)
    assert found.per_step.exposed_communication_us == 10


def test_programs_that_ran_in_graphs_say_so():
    built = profile().kernel("command_buffer_1", 10, "gemm", instruction="dot.1")
    built.execution_of("jit_other(2)").kernel("dot.1", 5)
    found = summary(built.build())
    graphs = [(p.name, p.executions, p.device_us, p.command_buffers) for p in found.programs]
    assert graphs == [(STEP, 1, 10.0, True), ("jit_other(2)", 1, 5.0, False)]


def test_versions_of_hosts_that_differ():
    built = profile().kernel("dot.1", 10).host("b", versions={"jax_version": "2", "x_version": "3"})
    hosts = (replace(built.hosts[0], versions={"jax_version": "1"}), built.hosts[1])
    found = summary(replace(built.build(), hosts=hosts))
    assert found.versions == {"jax": "1, 2", "x": "3"}
    assert found.hosts == ("host", "b")


def test_no_more_ops_than_fit_the_screen():
    built = profile()
    for number in range(TOP + 3):
        built.kernel(f"dot.{number}", 10 + number)
    found = summary(built.build()).top
    assert [op.instruction for op in found] == [f"dot.{i}" for i in range(TOP + 2, 2, -1)]


def test_a_loop_does_not_hide_what_runs_inside_it(tmp_path: Path):
    """On lanes where operations nest, only the innermost counts."""
    built = space()
    ops = built.tpu().line("XLA Ops")
    labels = {"program_id": 1, "hlo_module": "jit_step"}
    ops.event("while.1", 0, 100, **labels).event("all-reduce.2", 10, 30, **labels)
    ops.event("copy-start.3", 50, 20, **labels)
    times = summary(load(built.write(tmp_path / "tpu.xplane.pb"))).per_step
    assert times == StepTimes(
        wall_us=100,
        compute_us=50,
        communication_us=30,
        exposed_communication_us=30,
        copy_us=20,
        exposed_copy_us=20,
        idle_us=0,
        unattributed_us=0,
    )


moves = st.lists(
    st.tuples(
        st.sampled_from(["kernel", "all_reduce", "copy", "idle"]),
        st.integers(1, 20),
        st.integers(0, 15),
    ),
    min_size=1,
    max_size=10,
)


@given(moves)
def test_parts_of_a_step_add_up_and_match_a_look_at_every_moment(moves):
    built = profile()
    for what, us, hidden in moves:
        if what == "idle":
            built.idle(us)
        elif what == "kernel":
            built.kernel("dot.1", us)
        else:
            getattr(built, what)(us, hidden=min(hidden, built.devices[-1].at))
    found = built.build()
    if not len(found.events):
        return
    seen = []
    lanes = [lane.name.partition("(")[2] for lane in found.lanes]
    starts, lengths = found.events["start_ps"] // PS, found.events["duration_ps"] // PS
    for t in range(int(starts.min()), int((starts + lengths).max())):
        running = (starts <= t) & (t < starts + lengths)
        seen.append({lanes[i][:4] for i in found.events["lane"][running].tolist()})
    times = summary(found).per_step
    assert times.wall_us == len(seen)
    assert times.compute_us == sum("Comp" in now for now in seen)
    assert times.communication_us == sum("Comm" in now for now in seen)
    assert times.exposed_communication_us == sum("Comm" in n and "Comp" not in n for n in seen)
    assert times.copy_us == sum("Memc" in now for now in seen)
    assert times.exposed_copy_us == sum(now == {"Memc"} for now in seen)
    assert times.idle_us == sum(not now for now in seen)
    parts = times.compute_us + times.exposed_communication_us + times.exposed_copy_us
    assert parts + times.idle_us == pytest.approx(times.wall_us)


def merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


@pytest.mark.parametrize("name", ["off_lhs_nocb", "off_default", "nccl2_lhs_r0", "single"])
def test_the_steps_of_a_recording_counted_plainly(data: Path, name: str):
    found = load(data / f"{name}.xplane.pb.gz")
    events, steps, kind = found.events, found.steps, kinds(found).tolist()
    times = zip(events["start_ps"].tolist(), events["duration_ps"].tolist(), strict=True)
    spans = [(start, start + length) for start, length in times]

    def covered(wanted: set[int], begin: int, end: int) -> int:
        own = merged([span for span, one in zip(spans, kind, strict=True) if one in wanted])
        return sum(max(0, min(b, end) - max(a, begin)) for a, b in own)

    rows = []
    for begin, end in zip(steps.start_ps.tolist(), steps.end_ps.tolist(), strict=True):
        compute, talk, copy, working, busy = (
            covered(wanted, begin, end) for wanted in ({0}, {1}, {2}, {0, 1}, {0, 1, 2})
        )
        wall = end - begin
        rows.append((wall, compute, talk, working - compute, copy, busy - working, wall - busy))
    middle = [float(np.median(column)) / PS for column in zip(*rows, strict=True)]
    per_step = summary(found).per_step
    assert list(vars(per_step).values())[:7] == pytest.approx(middle, rel=1e-12)
