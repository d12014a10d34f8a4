"""Whole timelines of small programs."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest

from schedules import (
    MACHINE,
    NOTHING,
    copied,
    costs,
    gather,
    gathered,
    kernel,
    program,
    to_device,
    to_host,
    within,
)
from slipstream.analyses.summary import step_times, summary
from slipstream.errors import BadInput
from slipstream.machines.machine import Estimate
from slipstream.profile.program import Program
from slipstream.profile.validation import validate
from slipstream.simulate.engine import Simulation, simulation
from slipstream.simulate.overheads import Overheads

Row = tuple[str, str, float, float]


def simulated(
    found: Program,
    estimates: Mapping[str, Estimate],
    overheads: Overheads = NOTHING,
    command_buffers: bool | None = None,
) -> Simulation:
    result = simulation(
        found, MACHINE, estimates=estimates, overheads=overheads, command_buffers=command_buffers
    )
    validate(result.profile)
    return result


def rows(result: Simulation) -> list[Row]:
    """(lane, instruction, start, end) in microseconds, in order of start."""
    events = result.profile.events
    lanes = [lane.name.partition("(")[2].rstrip(")") for lane in result.profile.lanes]
    return [
        (
            lanes[int(events["lane"][row])],
            events.text("instruction", row),
            int(events["start_ps"][row]) / 1e6,
            int(events["start_ps"][row] + events["duration_ps"][row]) / 1e6,
        )
        for row in range(len(events))
    ]


def test_kernels_run_one_after_the_other() -> None:
    found = program(kernel("b", "a"), kernel("c", "b"), kernel("d", "a", root=True))
    assert rows(simulated(found, costs(b=10, c=5, d=1))) == [
        ("compute", "b", 0, 10),
        ("compute", "c", 10, 15),
        ("compute", "d", 15, 16),
    ]


def test_a_collective_runs_beside_compute_and_its_wait_is_exposed() -> None:
    found = program(
        kernel("b", "a"),
        gather("g", "b"),
        kernel("c", "b"),
        gathered("gd", "g"),
        kernel("d", "c", root=True),
    )
    result = simulated(found, costs(b=10, g=30, c=12, d=1))
    assert rows(result) == [
        ("compute", "b", 0, 10),
        ("communication", "g", 10, 40),
        ("compute", "c", 10, 22),
        ("compute", "d", 40, 41),
    ]
    (wait,) = result.waits
    assert (wait.instruction, wait.us, wait.times) == ("g", 18, 1)
    times = step_times(result.profile)
    assert (times.communication_us, times.exposed_communication_us) == (30, 18)


def test_a_synchronous_collective_holds_the_compute_stream() -> None:
    found = program(gather("g", "a", sync=True), gathered("gd", "g"), kernel("d", "a", root=True))
    result = simulated(found, costs(g=30, d=1))
    assert rows(result) == [("compute", "g", 0, 30), ("compute", "d", 30, 31)]
    assert result.inline == {"g"}
    assert step_times(result.profile).exposed_communication_us == 30


def test_collectives_queue_on_one_stream_unless_the_limit_says_more() -> None:
    lines = (
        gather("g", "a"),
        gather("h", "a"),
        kernel("b", "a"),
        gathered("gd", "g"),
        gathered("hd", "h"),
        kernel("d", "b", root=True),
    )
    estimates = costs(g=10, h=10, b=1, d=1)
    assert rows(simulated(program(*lines), estimates))[-1] == ("compute", "d", 20, 21)
    flags = {"xla_gpu_experimental_parallel_collective_overlap_limit": "2"}
    both = rows(simulated(program(*lines, flags=flags), estimates))
    assert [row for row in both if "communication" in row[0]] == [
        ("communication 1", "g", 0, 10),
        ("communication 2", "h", 0, 10),
    ]
    assert both[-1] == ("compute", "d", 10, 11)


def test_copies_in_one_direction_share_an_engine() -> None:
    """
    async 1   D2H ██████████
    async 2   D2H           ██████████
    async 3   H2D ████████
    """
    found = program(
        to_host("s1", "a"),
        to_host("s2", "a"),
        "%h = f32[8]{0:S(5)} parameter(1)",
        to_device("s3", "h"),
        copied("d1", "s1", True),
        copied("d2", "s2", True),
        copied("d3", "s3"),
        "ROOT %b = f32[8] fusion(%d1, %d2, %d3), kind=kLoop, calls=%sum",
        others="%sum (x: f32[8], y: f32[8], z: f32[8]) -> f32[8] {\n"
        "  %x = f32[8] parameter(0)\n  %y = f32[8] parameter(1)\n  %z = f32[8] parameter(2)\n"
        "  ROOT %n = f32[8] negate(%x)\n}\n",
    )
    assert rows(simulated(found, costs(s1=10, s2=10, s3=8, b=1))) == [
        ("async 1", "s1", 0, 10),
        ("async 3", "s3", 0, 8),
        ("async 2", "s2", 10, 20),
        ("compute", "b", 20, 21),
    ]


def test_a_stream_runs_in_order_even_where_the_engine_is_free() -> None:
    """The fifth copy shares a stream with the first, and waits for it though its engine is free.

    async 1   D2H ████████████  D2D ██
    async 2   D2D ██
    """
    names = ["s1", "s2", "s3", "s4", "s5"]
    dones = [copied(f"d{i}", name, i == 1) for i, name in enumerate(names, 1)]
    found = program(
        to_host("s1", "a"),
        *(within(name, "a") for name in names[1:]),
        *dones,
        "ROOT %t = (f32[8], f32[8], f32[8], f32[8], f32[8]) tuple(%d1, %d2, %d3, %d4, %d5)",
    )
    result = simulated(found, costs(s1=12, s2=2, s3=2, s4=2, s5=2))
    assert rows(result) == [
        ("async 1", "s1", 0, 12),
        ("async 2", "s2", 0, 2),
        ("async 3", "s3", 2, 4),
        ("async 4", "s4", 4, 6),
        ("async 1", "s5", 12, 14),
    ]


LOOP = """%body (p: (s32[], f32[8])) -> (s32[], f32[8]) {
  %p = (s32[], f32[8]) parameter(0)
  %i = s32[] get-tuple-element(%p), index=0
  %x = f32[8] get-tuple-element(%p), index=1
  %g = (f32[8], f32[16]) all-gather-start(%x), replica_groups={{0,1}}, dimensions={0}
  %b = f32[8] negate(%x)
  %gd = f32[16] all-gather-done(%g)
  ROOT %t = (s32[], f32[8]) tuple(%i, %b)
}

%condition (q: (s32[], f32[8])) -> pred[] {
  %q = (s32[], f32[8]) parameter(0)
  ROOT %c = pred[] constant(true)
}
"""
WHILE = "%w = (s32[], f32[8]) while(%z), condition=%condition, body=%body"
COUNTED = WHILE + ', backend_config={"known_trip_count":{"n":"3"}}'


def looped(loop: str) -> Program:
    return program(
        "%k = s32[] constant(0)",
        "%z = (s32[], f32[8]) tuple(%k, %a)",
        loop,
        "ROOT %r = f32[8] get-tuple-element(%w), index=1",
        others=LOOP,
    )


def test_a_loop_runs_as_often_as_its_trip_count() -> None:
    result = simulated(looped(COUNTED), costs(g=5, b=2))
    assert rows(result) == [
        (lane, name, at + 5 * turn, end + 5 * turn)
        for turn in range(3)
        for lane, name, at, end in (("communication", "g", 0, 5), ("compute", "b", 0, 2))
    ]
    assert result.waits[0].us == 9 and result.waits[0].times == 3
    assert result.executions == {"g": 3, "b": 3}


def test_a_loop_without_a_trip_count_runs_once_with_a_warning() -> None:
    result = simulated(looped(WHILE), costs(g=5, b=2))
    assert [row[1] for row in rows(result)] == ["g", "b"]
    assert [w.code for w in result.profile.warnings] == ["simulated", "unknown-trip-count"]
    assert "%w" not in result.profile.warnings[1].message
    assert result.profile.warnings[1].message == (
        "1 loop runs once, because its trip count is unknown: w"
    )


def test_the_longest_branch_counts() -> None:
    branch = "%{0} ({0}p: f32[8]) -> f32[8] {{\n  %{0}p = f32[8] parameter(0)\n"
    branch += "  ROOT %{0}n = f32[8] negate(%{0}p)\n}}\n"
    found = program(
        "%k = pred[] constant(true)",
        "ROOT %w = f32[8] conditional(%k, %a, %a), true_computation=%one, false_computation=%other",
        others=branch.format("one") + "\n" + branch.format("other"),
    )
    result = simulated(found, costs(onen=5, othern=7))
    assert rows(result) == [("compute", "othern", 0, 7)]
    warning = result.profile.warnings[1]
    assert (warning.code, warning.message) == (
        "conditional",
        "1 conditional takes its longest branch: w (other)",
    )


def test_many_conditionals_are_one_warning() -> None:
    branch = "%one (p: f32[8]) -> f32[8] {\n  %p = f32[8] parameter(0)\n"
    branch += "  ROOT %n = f32[8] negate(%p)\n}\n"
    taken = [
        f"%c{i} = f32[8] conditional(%k, %{'a' if not i else f'c{i - 1}'}), "
        "branch_computations={%one}"
        for i in range(5)
    ]
    found = program("%k = s32[] constant(0)", *taken[:-1], f"ROOT {taken[-1]}", others=branch)
    warnings = simulated(found, costs(n=5)).profile.warnings
    assert [one.message for one in warnings if one.code == "conditional"] == [
        "5 conditionals take their longest branches: c0 (one), c1 (one), c2 (one) and 2 more"
    ]


def asynchronous_slices() -> Program:
    slices = """%slice (p: f32[64]) -> f32[8] {
  %p = f32[64] parameter(0)
  ROOT %s = f32[8] slice(%p), slice={[0:8]}
}
"""
    start = "((f32[64]), f32[8], u32[]) fusion-start(%w), kind=kLoop, calls=%slice"
    return program(
        "%w = f32[64] parameter(1)",
        kernel("b", "a"),
        f"%s1 = {start}",
        kernel("c", "b"),
        "%d1 = f32[8] fusion-done(%s1)",
        kernel("d", "c"),
        kernel("e", "d", root=True),
        others=slices,
    )


def test_graphs_serialise_asynchronous_fusions() -> None:
    estimates = costs(b=1, s1=4, c=1, d=1, e=1)
    beside = simulated(asynchronous_slices(), estimates, command_buffers=False)
    assert [row for row in rows(beside) if row[1] == "s1"] == [("async 1", "s1", 1, 5)]
    assert step_times(beside.profile).wall_us == 7
    captured = simulated(asynchronous_slices(), estimates, command_buffers=True)
    assert [row for row in rows(captured) if row[1] == "s1"] == [("compute", "s1", 1, 5)]
    assert step_times(captured.profile).wall_us == 8
    assert captured.inline == {"s1"}
    assert set(captured.profile.events["graph"].tolist()) == {1}


def test_the_flags_decide_on_graphs() -> None:
    found = asynchronous_slices()
    assert simulated(found, costs(s1=4)).inline == {"s1"}
    without = replace(found, flags={"xla_gpu_enable_command_buffer": ""})
    assert simulated(without, costs(s1=4)).inline == set()
    larger = replace(found, flags={"xla_gpu_graph_min_graph_size": "20"})
    assert simulated(larger, costs(s1=4)).inline == set()


def test_short_kernels_are_bound_by_their_launches() -> None:
    overheads = Overheads(launch_us=3, latency_us=4, gap_us=1, contention=0)
    found = program(kernel("b", "a"), kernel("c", "b"), kernel("d", "c", root=True))
    result = simulated(found, costs(b=1, c=1, d=10), overheads, command_buffers=False)
    assert [row[2:] for row in rows(result)] == [(7, 8), (10, 11), (13, 23)]


@pytest.mark.parametrize("basis", ["modelled", "measured"])
def test_a_collective_and_a_kernel_slow_each_other(basis: str) -> None:
    """Both take 1000 µs alone; the collective has one channel, a hundredth of the cores."""
    overheads = replace(NOTHING, contention=1)
    found = program(
        kernel("b", "a"), gather("g", "b"), kernel("c", "b"), gathered("gd", "g"),
        kernel("d", "c", root=True),
    )  # fmt: skip
    result = simulated(found, costs(basis, b=10, g=1000, c=1000, d=0), overheads)
    found_ends = {row[1]: row[3] for row in rows(result)}
    alone = 1010.0
    if basis == "measured":
        assert found_ends["c"] == found_ends["g"] == alone
    else:
        # 1% slower for the whole time; the collective 10% slower until the kernel has ended.
        assert found_ends["c"] == pytest.approx(10 + 1000 / 0.99)
        assert found_ends["g"] == pytest.approx(alone + 0.1 * 1000 / 0.99)


def test_a_timeline_is_a_profile_that_analyses_take() -> None:
    found = program(kernel("b", "a"), kernel("c", "b", root=True))
    shown = summary(simulated(found, costs(b=10, c=5)).profile)
    assert (shown.step_count, shown.step_median_us) == (1, 15)
    assert shown.hosts == ("simulated",)
    assert shown.warnings[0].code == "simulated"
    assert [op.instruction for op in shown.top] == ["b", "c"]


@pytest.mark.parametrize("us", [-1.0, math.nan, math.inf, 1e30])
def test_an_estimate_that_cannot_be_is_refused(us: float) -> None:
    """Estimates may come from anywhere: a script, or a model that was given an absurd shape."""
    toy = program(kernel("b", "a"), kernel("c", "b", root=True))
    estimates = {"b": Estimate(us, "modelled", "other", "by hand"), "c": Estimate(1.0, "modelled")}
    with pytest.raises(BadInput, match=r"the time of b is .* \(modelled: by hand\); expected 0 to"):
        simulation(toy, MACHINE, estimates=estimates)
