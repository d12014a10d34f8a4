"""Idle time by cause: planted problems, a plain twin, and recordings."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import ProfileBuilder, profile
from slipstream.analyses.gaps import CAUSES, Gap, gaps
from slipstream.sources.load import load


def step(launched: float, *doing: tuple[str, float, float]) -> ProfileBuilder:
    """A kernel, 100 µs of nothing, a kernel whose launch ends at `launched`; and host events."""
    built = profile().launch(1, at=-5).kernel("dot.1", 50, correlation=1).idle(100)
    built.kernel("dot.2", 50, correlation=2).launch(2, at=launched - 1)
    for name, start, us in doing:
        built.host_event(name, start, us)
    return built


@pytest.mark.parametrize(
    ("launched", "doing", "causes"),
    [
        # The host is busy launching; the launch takes 5 µs to arrive.
        (145, [("GpuExecutable::ExecuteThunks", 0, 160)], {"launch": 95, "latency": 5}),
        # Python does something before it launches.
        (145, [("$train.py:7 log", 60, 40)], {"launch": 1, "host": 94, "latency": 5}),
        # A new batch goes to the device.
        (
            145,
            [("$api.py:99 device_put", 60, 40)],
            {"input": 40, "launch": 1, "host": 54, "latency": 5},
        ),
        # A generator makes it; other functions named after batches may be the loop itself.
        (
            145,
            [("$train.py:9 make_batch", 60, 20), ("$builtins next", 100, 20)],
            {"input": 40, "launch": 1, "host": 54, "latency": 5},
        ),
        (145, [("$train.py:3 train_batch", 0, 144)], {"launch": 1, "host": 94, "latency": 5}),
        # A function is traced and lowered.
        (
            145,
            [("$partial_eval.py:9 trace_to_jaxpr", 60, 40), ("PjitFunction(f)", 50, 95)],
            {"compilation": 40, "launch": 55, "latency": 5},
        ),
        # A function is compiled, whatever else the thread is said to do.
        (
            150,
            [("backend_compile", 50, 90), ("PjitFunction(f)", 40, 110)],
            {"compilation": 90, "launch": 10},
        ),
        # All was launched long before.
        (20, [], {"latency": 100}),
    ],
)
def test_planted_causes(launched, doing, causes):
    found = gaps(step(launched, *doing).build())
    assert found.by_cause == pytest.approx(causes)
    assert list(found.by_cause) == [cause for cause in CAUSES if cause in causes]
    assert (found.idle_us, found.wall_us, found.count, found.steps) == (100.0, 200.0, 1, 1)
    assert found.notes == ()


def test_the_whole_gap():
    doing = ("$train.py:7 log", 55.0, 80.0)
    found = gaps(step(145, doing).build())
    cause, before, after = "host", "dot.1", "dot.2"
    assert found.longest == (
        Gap("GPU:0", "host", 0, 50.0, 100.0, cause, before, after, "", "$train.py:7 log"),
    )


def test_gaps_between_the_same_instructions_are_one():
    built = profile()
    for _ in range(3):
        built.kernel("dot.1", 50).idle(10).kernel("dot.2", 50).idle(4)
    built.kernel("dot.1", 50).idle(30).kernel("dot.2", 50)
    found = gaps(built.build())
    assert [(g.before, g.after, g.cause) for g in found.groups] == [
        ("dot.1", "dot.2", "unknown"),
        ("dot.2", "dot.1", "unknown"),
    ]
    assert [g.per_step_count * found.steps for g in found.groups] == pytest.approx([4, 3])
    assert [g.per_step_us * found.steps for g in found.groups] == pytest.approx([60.0, 12.0])
    assert found.groups[0].longest == found.longest[0]
    assert found.groups[0].longest.us == 30.0


@pytest.mark.parametrize("name", ["off_default", "nccl2_lhs_r0"])
def test_groups_of_a_recording_are_its_gaps(name, data, monkeypatch):
    monkeypatch.setattr("slipstream.analyses.gaps.LONGEST", 10**6)
    found = gaps(load(data / f"{name}.xplane.pb.gz"))
    expected: dict[tuple[str, str], list[float]] = {}
    for gap in found.longest:
        expected.setdefault((gap.before, gap.after), []).append(gap.us)
    assert len(found.groups) == len(expected)
    for group in found.groups:
        times = expected[group.before, group.after]
        assert group.per_step_us * found.steps == pytest.approx(sum(times))
        assert group.per_step_count * found.steps == pytest.approx(len(times))
        assert group.longest.us == max(times)


def test_what_a_builtin_does_is_what_its_caller_does():
    doing = [("$train.py:7 log", 55.0, 80.0), ("$time sleep", 56.0, 78.0)]
    assert gaps(step(145, *doing).build()).longest[0].doing == "$train.py:7 log"
    assert gaps(step(145, doing[1]).build()).longest[0].doing == "$time sleep"


def test_what_ran_before_a_gap_is_what_ended_last():
    """An all-reduce that began before the last kernel ends after it."""
    built = profile().all_reduce(80).at(10).kernel("dot.1", 20).at(180).kernel("dot.2", 50)
    (gap,) = gaps(built.build()).longest
    assert (gap.before, gap.us, gap.after) == ("all-reduce.1", 100.0, "dot.2")


def test_without_host_events_nothing_is_claimed():
    built = profile().kernel("dot.1", 50).idle(100).kernel("dot.2", 50)
    found = gaps(built.build())
    assert found.by_cause == {"unknown": 100.0}
    assert found.notes == ("no launches were recorded for GPU:0: causes are unknown",)


def test_compute_that_waits_for_another_stream_is_not_idle():
    built = profile().kernel("dot.1", 50).all_reduce(100, hidden=10).kernel("dot.2", 50)
    found = gaps(built.build())
    assert (found.idle_us, found.waiting_us, found.by_cause) == (0.0, 90.0, {})


def test_an_empty_recording():
    found = gaps(profile().build())
    assert (found.idle_us, found.longest, found.count) == (0.0, (), 0)


HOST = ("backend_compile", "device_put", "ExecuteThunks", "$train.py:7 log")


@given(
    st.lists(st.tuples(st.integers(1, 20), st.integers(0, 20), st.integers(0, 60)), max_size=6),
    st.lists(st.tuples(st.sampled_from(HOST), st.integers(0, 120), st.integers(1, 30)), max_size=6),
)
def test_causes_are_those_of_a_plain_count(kernels, doing):
    """Kernels as (length, idle before, when its launch was done); µs by µs."""
    built = profile()
    busy: set[int] = set()
    waits: list[tuple[range, int]] = []
    made = {name: set() for name in HOST}
    for name, start, us in doing:
        built.host_event(name, start, us)
        made[name].update(range(start, start + us))
    at = 0
    for number, (length, idle, early) in enumerate([(5, 0, 0), *kernels], start=1):
        waits.append((range(at, at + idle), at + idle - early))
        at += idle
        built.at(at).kernel("dot.1", length, correlation=number)
        built.launch(number, at=at - early - 1)
        made["ExecuteThunks"].add(at - early - 1)
        busy.update(range(at, at + length))
        at += length
    counted = dict.fromkeys(CAUSES, 0)
    for span, launched in waits:
        for us in span:
            if us >= launched:
                counted["latency"] += 1
            elif us in made["backend_compile"]:
                counted["compilation"] += 1
            elif us in made["device_put"]:
                counted["input"] += 1
            else:
                counted["launch" if us in made["ExecuteThunks"] else "host"] += 1
    found = gaps(built.build())
    assert found.by_cause == pytest.approx({k: v for k, v in counted.items() if v})
    assert found.idle_us == at - len(busy)


@pytest.mark.parametrize("name", ["off_default", "off_lhs_nocb", "single", "attention_plain"])
def test_causes_of_recordings_add_up_to_their_idle_time(data: Path, name: str):
    found = gaps(load(data / f"{name}.xplane.pb.gz"))
    assert sum(found.by_cause.values()) == pytest.approx(found.idle_us)
    assert found.idle_us == pytest.approx(found.per_step.idle_us, rel=0.2)
    # Each step waits for its results, and Python begins the next one.
    assert found.by_cause["launch"] > 0
    assert any(gap.doing.endswith("block_until_ready") for gap in found.longest)
