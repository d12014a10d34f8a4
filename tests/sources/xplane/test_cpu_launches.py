"""Runs of XLA:CPU and the calls that launched them, against a plain twin."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from builders import PS, Ref, SpaceBuilder, space
from slipstream.analyses.gaps import gaps
from slipstream.profile.profile import Profile
from slipstream.profile.validation import validate
from slipstream.sources.load import load

CALL = "CommonPjRtLoadedExecutable::ExecuteHelperOnSingleDevice"
TIMES = st.lists(st.integers(0, 60), unique=True, max_size=8).map(sorted)


def recorded(folder: Path, built: SpaceBuilder) -> Profile:
    found = load(built.write(folder / "cpu.xplane.pb"))
    validate(found)
    return found


def loop(calls: list[int], runs: list[int], log: tuple[int, int] | None = None) -> SpaceBuilder:
    """Calls by Python, and runs of two operations each on a thread of the client."""
    built = space()
    plane = built.host()
    python, client = plane.line("python"), plane.line("tf_XLAPjRtCpuClient/1")
    for at in calls:
        python.event(CALL, at, 1)
    if log is not None:
        python.event("$train.py:7 log", *log)
    # XLA numbers runs at random, also below zero.
    for at in runs:
        labels = {"hlo_module": Ref("jit_step"), "program_id": 1, "run_id": 7 * at - 100}
        client.event("dot.1", at, 1.5, hlo_op=Ref("dot.1"), **labels)
        client.event("dot.2", at + 1.5, 1.5, hlo_op=Ref("dot.2"), **labels)
    return built


def pairs(found: Profile) -> dict[int, int]:
    """Start of each run that has a call: start of the call."""
    events, host = found.events, found.host_events
    runs = dict(zip(events["correlation"].tolist(), events["start_ps"].tolist(), strict=True))
    for number, start in zip(events["correlation"].tolist(), events["start_ps"], strict=True):
        runs[number] = min(runs[number], int(start))
    launched = zip(host["correlation"].tolist(), host["start_ps"].tolist(), strict=True)
    return {runs[number] // PS: start // PS for number, start in launched if number}


def plain_pairs(calls: list[int], runs: list[int]) -> dict[int, int]:
    """From the last run on, each takes the last call before it that is left."""
    left, found = list(calls), {}
    for run in reversed(runs):
        earlier = [call for call in left if call <= run]
        if earlier:
            found[run] = earlier[-1]
            left = earlier[:-1]
    return found


@given(TIMES, TIMES.filter(bool))
def test_each_run_has_the_last_call_that_is_left(tmp_path_factory, calls, runs):
    apart = [10 * at for at in runs]
    found = recorded(tmp_path_factory.mktemp("cpu"), loop([10 * at for at in calls], apart))
    assert pairs(found) == plain_pairs([10 * at for at in calls], apart)
    assert sorted(set(found.events["correlation"].tolist())) == list(range(1, len(runs) + 1))


def test_idle_time_is_what_the_launching_thread_did(tmp_path: Path):
    """Each call comes late, the second one because of a log."""
    found = gaps(recorded(tmp_path, loop([0, 40, 80], [2, 42, 82], log=(6, 30))))
    assert found.by_cause.keys() <= {"host", "launch", "latency"}
    assert (found.longest[0].cause, found.longest[0].doing) == ("host", "$train.py:7 log")


def test_time_inside_a_run_is_not_the_hosts(tmp_path: Path):
    """XLA:CPU may run a program within the call, whose thread then launches nothing else."""
    built = space()
    plane = built.host()
    python, other = plane.line("python"), plane.line("tf_XLAEigen/1")
    for run, at in enumerate((0, 100, 200), 1):
        labels = {"hlo_module": Ref("jit_step"), "program_id": 1, "run_id": run}
        python.event(CALL, at, 90)
        python.event("dot.1", at + 1, 10, hlo_op=Ref("dot.1"), **labels)
        other.event("dot.2", at + 50, 40, hlo_op=Ref("dot.2"), **labels)
    found = gaps(recorded(tmp_path, built))
    waits = {gap.after: gap.cause for gap in found.longest}
    assert waits["dot.2"] == "latency"
    assert waits["dot.1"] == "host"
