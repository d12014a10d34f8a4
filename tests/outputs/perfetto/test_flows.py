"""Arrows: every asynchronous start to its done, every launch to what it launched."""

from __future__ import annotations

from pathlib import Path

import pytest

from builders import STEP, profile
from outputs.perfetto.perfetto_reader import read_all
from schedules import copied, gather, gathered, kernel, program, to_host
from slipstream.analyses.def_use import DefUse
from slipstream.outputs.perfetto.flows import async_arrows, launch_arrows
from slipstream.outputs.perfetto.trace import perfetto_bytes
from slipstream.profile.profile import Profile
from slipstream.profile.program import Program
from slipstream.sources.load import load

WRAPPED = """%inner (p: f32[8]) -> f32[8] {
  %p = f32[8] parameter(0)
  ROOT %permute.1 = f32[8] collective-permute(%p), source_target_pairs={{0,1}}
}
"""


def pairs(found: Profile) -> list[tuple[str, str]]:
    arrows, events = async_arrows(found), found.events
    return [
        (events.text("instruction", a), events.text("instruction", b))
        for a, b in zip(arrows.start.tolist(), arrows.end.tolist(), strict=True)
    ]


def run(found: Program, *events: tuple[str, float, str]) -> Profile:
    """One execution: (instruction, µs, lane), one after another."""
    built = profile().with_program(STEP, found)
    for name, us, lane in events:
        built.kernel(name, us, lane=lane)
    return built.build()


def test_a_start_points_at_the_first_that_needs_it():
    found = program(
        gather("g", "a"), kernel("b", "a"), gathered("gd", "g"),
        "%s = f32[8] slice(%gd), slice={[0:8]}", kernel("c", "s"), "ROOT %e = f32[8] add(%c, %b)",
    )  # fmt: skip
    made = run(found, ("g", 5, "comm"), ("b", 9, "main"), ("s", 1, "main"), ("e", 2, "main"))
    assert pairs(made) == [("g", "s")]


def test_a_start_points_at_its_done_where_that_left_a_trace():
    found = program(
        to_host("s", "a"), kernel("b", "a"), copied("sd", "s", True), kernel("c", "b", True)
    )
    made = run(found, ("s", 5, "copies"), ("b", 9, "main"), ("sd", 1, "main"), ("c", 1, "main"))
    assert pairs(made) == [("s", "sd")]


def test_wrapped_operations_are_known_by_what_is_inside():
    found = program(
        "%start = ((f32[8]), f32[8], u32[]) async-start(%a), calls=%inner",
        kernel("b", "a"),
        "%done = f32[8] async-done(%start)",
        "ROOT %e = f32[8] add(%done, %b)",
        others=WRAPPED,
    )
    made = run(found, ("permute.1", 5, "comm"), ("b", 9, "main"), ("e", 2, "main"))
    assert pairs(made) == [("permute.1", "e")]


def test_executions_and_devices_are_apart():
    found = program(gather("g", "a"), gathered("gd", "g"), "ROOT %e = f32[8] slice(%gd)")
    built = profile().with_program(STEP, found)
    built.kernel("g", 5, lane="comm").kernel("e", 2).execution_of().kernel("g", 5, lane="comm")
    built.device("GPU:1").execution_of().kernel("e", 2)
    # The second execution of the first device was cut off before its end.
    assert pairs(built.build()) == [("g", "e")]


def test_of_several_kernels_the_last_points():
    found = program(gather("g", "a"), gathered("gd", "g"), "ROOT %e = f32[8] slice(%gd)")
    made = run(found, ("g", 5, "comm"), ("g", 3, "comm"), ("e", 2, "main"))
    arrows = async_arrows(made)
    assert (arrows.start.tolist(), arrows.end.tolist()) == ([1], [2])


def test_a_launch_points_at_the_first_it_launched():
    built = profile().launch(7, at=0).launch(8, at=20).launch(9, at=40)
    built.at(5).kernel("a", 3, correlation=7).kernel("b", 3, correlation=7)
    # This one's clock is off: an arrow back in time helps nobody.
    built.at(18).kernel("c", 1, correlation=8).kernel("d", 1, correlation=0)
    arrows = launch_arrows(built.build())
    assert (arrows.start.tolist(), arrows.end.tolist()) == ([0], [0])


def test_hosts_number_their_launches_on_their_own():
    built = profile().launch(7, at=0).at(5).kernel("a", 3, correlation=7)
    built.host("two").device("GPU:1").launch(7, at=1).at(9).kernel("b", 3, correlation=7)
    arrows = launch_arrows(built.build())
    assert (arrows.start.tolist(), arrows.end.tolist()) == ([0, 1], [0, 1])


def test_nothing_at_all():
    assert not len(async_arrows(profile().build())) and not len(launch_arrows(profile().build()))


@pytest.mark.parametrize("name", ["nccl2_lhs_r0", "off_lhs_nocb", "off_default"])
def test_every_asynchronous_event_of_a_recording_has_its_arrow(data: Path, name: str):
    """Read back from the trace, and found plainly, event by event in the order of launches."""
    found = load(data / f"{name}.xplane.pb.gz")
    expected = sorted(plain_arrows(found))
    assert expected
    trace = read_all(b"".join(perfetto_bytes(found)))
    drawn = [
        (a.notes["instruction"], a.start_ns, b.notes["instruction"], b.start_ns)
        for a, b in trace.arrows
        if a.category == "device"
    ]
    assert sorted(drawn) == expected
    for a, b in trace.arrows:
        assert b.category == "device" and a.start_ns <= b.start_ns
        assert a.category in ("host", "device")


def plain_arrows(found: Profile) -> list[tuple[str, int, str, int]]:
    events = found.events
    origin = min(0, int(events["start_ps"].min()), int(found.host_events["start_ps"].min()))
    rows = sorted(
        range(len(events)),
        key=lambda row: (events["correlation"][row], events["start_ps"][row]),
    )
    told: dict[tuple[str, int], tuple[str, int]] = {}
    for at, row in enumerate(rows):
        name, label = (events.text(column, row) for column in ("program", "instruction"))
        program = found.programs.get(name)
        if program is None or label not in program:
            continue
        start = program.starter(label) or program.instruction(label)
        if not start.is_start:
            continue
        labels = {events.text("instruction", other) for other in rows} - {""}
        users = DefUse(program, labels).users(label).instructions
        for other in rows[at + 1 :]:
            is_same = events["execution"][other] == events["execution"][row]
            if events.text("program", other) == name and is_same:
                user = events.text("instruction", other)
                if user in users:
                    key = (user, (int(events["start_ps"][other]) - origin) // 1000)
                    told[label, key] = (int(events["start_ps"][row]) - origin) // 1000
                    break
    return [(label, start, user, end) for (label, (user, end)), start in told.items()]
