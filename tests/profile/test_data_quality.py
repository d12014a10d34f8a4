"""Each warning: when it is given, its text, and when it is not given."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from builders import profile, space
from slipstream.profile import data_quality
from slipstream.profile.data_quality import add_data_quality_warnings
from slipstream.profile.profile import Profile, ProfileWarning
from slipstream.sources.load import load


def said(found: Profile) -> dict[str, str]:
    warnings = add_data_quality_warnings(found).warnings
    assert len({w.code for w in warnings}) == len(warnings)
    return {w.code: w.message for w in warnings}


def steps(count: int, events: int = 3):
    built = profile()
    for _ in range(count):
        for number in range(events):
            built.kernel(f"dot.{number}", 10)
        built.execution_of()
    return built


def test_a_good_recording():
    assert said(steps(5).build()) == {}


def test_the_host_launched_work_and_none_was_recorded(tmp_path):
    built = space()
    built.host().line("python").event("GpuExecutable::ExecuteThunks", 0, 5)
    found = load(built.write(tmp_path / "empty.xplane.pb"))
    assert [w.code for w in found.warnings] == ["empty-device-trace"]
    for word in ("CUPTI", "DCGM", "Nsight Systems", "dcgmi profile --pause"):
        assert word in found.warnings[0].message


def test_a_device_was_there_and_none_of_its_work_was_recorded(tmp_path):
    built = space()
    built.gpu().line("Stream #1(Kernel)")
    found = load(built.write(tmp_path / "empty.xplane.pb"))
    assert [w.code for w in found.warnings] == ["empty-device-trace"]


def test_no_device_was_used(tmp_path):
    built = space()
    built.host().line("python").event("sleep", 0, 5)
    found = load(built.write(tmp_path / "idle.xplane.pb"))
    assert [w.code for w in found.warnings] == ["no-device"]
    assert "before stopping it" in found.warnings[0].message


def test_the_profiler_said_that_it_dropped_events(tmp_path):
    built = space().note(warning="Dropped 12 activity records", error="CUPTI failed")
    built.note(warning="something else")
    built.gpu().line("Stream #1(Kernel)").kernel("k", 0, 5, "dot.1")
    found = load(built.write(tmp_path / "a.xplane.pb"))
    assert [(w.code, w.message) for w in found.warnings] == [
        ("profiler-error", "a.xplane.pb: CUPTI failed"),
        ("dropped-events", "a.xplane.pb: Dropped 12 activity records"),
        ("profiler-warning", "a.xplane.pb: something else"),
    ]


def test_as_many_events_as_the_profiler_keeps(monkeypatch):
    monkeypatch.setattr(data_quality, "ACTIVITY_LIMIT", 15)
    assert said(steps(5).build()) == {
        "dropped-events": "host recorded 15 device events, the profiler's limit, so later events "
        "are missing; record fewer steps, or raise gpu_max_activity_api_events"
    }
    assert said(steps(4).build()) == {}
    assert said(steps(6).build()) == {}


def test_the_limit_is_that_of_a_host_over_its_gpus(monkeypatch):
    monkeypatch.setattr(data_quality, "ACTIVITY_LIMIT", 6)
    both = profile().kernel("dot.1", 1).kernel("dot.2", 1).kernel("dot.3", 1)
    both.device("GPU:1").execution_of().kernel("dot.1", 1).kernel("dot.2", 1).kernel("dot.3", 1)
    assert list(said(both.build())) == ["dropped-events"]
    apart = profile().kernel("dot.1", 1).kernel("dot.2", 1).kernel("dot.3", 1)
    apart.host("other").device("GPU:0").execution_of()
    apart.kernel("dot.1", 1).kernel("dot.2", 1).kernel("dot.3", 1)
    assert said(apart.build()) == {}


def test_only_one_whole_step():
    built = profile().kernel("dot.1", 10).kernel("dot.2", 10).execution_of().kernel("dot.1", 10)
    assert said(built.build()) == {
        "truncated": "only one complete step was recorded (executions of jit_step(1), the program "
        "with the most device time; left out: 1 execution cut off by the recording), which is too "
        "little to tell how steps vary; record at least three"
    }


def test_executions_with_fewer_events_in_the_middle():
    built = profile()
    for number in range(8):
        for op in ("dot.1", "dot.2") if number not in (2, 3, 5) else ("dot.1",):
            built.kernel(op, 10)
        built.execution_of()
    assert said(built.build()) == {
        "uneven-executions": "3 of 8 executions of jit_step(1) have less than 90% of the median 2 "
        "events: either events were dropped, or the program branches; if it doesn't branch, record "
        "fewer steps"
    }


def two_hosts(offset: float, count: int = 4) -> Profile:
    """The same collectives on two hosts, whose clocks differ by so many µs."""
    built = profile()
    for name, shift in (("host", 0.0), ("other", offset)):
        if name == "other":
            built.host(name).device("GPU:0").execution_of()
        for number in range(count):
            built.at(100 * number + shift).kernel("dot.1", 5).all_reduce(20)
            built.execution_of()
    return built.build()


def test_clocks_are_doubted_once():
    doubted = two_hosts(1500).with_warnings(ProfileWarning("clock-skew", "known"))
    assert [warning.message for warning in add_data_quality_warnings(doubted).warnings] == ["known"]


def test_clocks_that_differ():
    assert said(two_hosts(1500)) == {
        "clock-skew": "collectives end 1.5 ms later on other than on host, so the two hosts' "
        "clocks differ as recorded; on a timeline, only compare times within one host (`hosts` "
        "and `collectives` correct for it)"
    }
    assert "1.5 ms earlier on other" in said(two_hosts(-1500))["clock-skew"]
    assert said(two_hosts(900)) == {}


def test_too_few_collectives_say_nothing_of_clocks():
    assert said(two_hosts(5000, count=2)) == {}


def test_time_that_fits_no_instruction():
    built = steps(4).kernel("mystery", 2, instruction="")
    assert said(built.build()) == {
        "unattributed": "1.6% of the device time could not be attributed to an instruction; to "
        "list the kernels, run: slipstream ops PATH --by kernel"
    }
    assert said(steps(4).kernel("mystery", 0.1, instruction="").build()) == {}


def test_time_of_no_program_gives_no_warning():
    built = steps(4).build()
    events = built.events
    program = events["program"].copy()
    program[:3] = 0
    instruction = np.where(program == 0, 0, events["instruction"])
    assert "unattributed" not in said(
        replace(built, events=events.replace(program=program, instruction=instruction))
    )


def test_times_that_can_not_be():
    good = steps(5).build()
    for column, value in (("duration_ps", -1), ("duration_ps", 2**62), ("start_ps", -(2**63))):
        times = good.events[column].copy()
        times[3] = value
        found = said(replace(good, events=good.events.replace(**{column: times})))
        assert "none of its times can be trusted" in found["impossible-times"]
    assert "impossible-times" not in said(good)
