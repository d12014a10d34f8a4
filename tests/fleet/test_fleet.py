"""Hosts read one by one: the same results as of one profile of all."""

from __future__ import annotations

import gc
import pickle
from dataclasses import replace
from pathlib import Path
from weakref import ref

import numpy as np
import pytest

from slipstream import BadInput
from slipstream.analyses.collectives import collectives, meetings
from slipstream.analyses.hosts import hosts
from slipstream.analyses.skew import match_collectives
from slipstream.analyses.summary import summary
from slipstream.costs.extract import extract_costs
from slipstream.fleet import digest as digests
from slipstream.fleet.digest import digest
from slipstream.fleet.fleet import Fleet, FleetBuilder, Unread
from slipstream.fleet.one_clock import _rule
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.steps import Steps
from slipstream.sources.load import load


@pytest.fixture(scope="module")
def fleet(folder: Path) -> Fleet:
    return fleet_of([load(file) for file in sorted(folder.iterdir())])


def fleet_of(profiles: list[Profile]) -> Fleet:
    builder = FleetBuilder()
    # Digests come in any order.
    for place, profile in reversed(list(enumerate(profiles))):
        builder.add(place, digest(profile, with_costs=True))
    return builder.build()


def test_the_summary_is_that_of_one_profile(fleet: Fleet, whole: Profile) -> None:
    found, expected = fleet.summary, summary(whole)
    assert found.per_step == expected.per_step
    assert found.phases_us == pytest.approx(expected.phases_us)
    assert [replace(op, total_us=0, per_step_us=0, share=0) for op in found.top] == [
        replace(op, total_us=0, per_step_us=0, share=0) for op in expected.top
    ]
    for name in ("total_us", "per_step_us", "share"):
        assert [getattr(op, name) for op in found.top] == pytest.approx(
            [getattr(op, name) for op in expected.top]
        )
    blank = {"phases_us": {}, "top": (), "warnings": ()}
    assert replace(found, **blank) == replace(expected, **blank)


def test_hosts_and_stragglers_are_those_of_one_profile(fleet: Fleet, whole: Profile) -> None:
    found = fleet.hosts
    assert found == hosts(whole)
    assert found.clock == "collectives" and found.matched > 100
    assert max(found.rows, key=lambda row: row.caused_us or 0.0).host == "c"
    assert [one.row.host for one in found.slow] == ["c"]


@pytest.mark.parametrize("policy", ["typical", "percentile:90", "max-communication", "jax"])
def test_costs_are_those_of_one_profile(fleet: Fleet, whole: Profile, policy: str) -> None:
    found, expected = fleet.costs(policy), extract_costs(whole, policy)
    (own,), (other,) = found.programs, expected.programs
    assert (own.fingerprint, own.program, own.is_bound) == (
        other.fingerprint, other.program, other.is_bound,
    )  # fmt: skip
    assert own.looked_up == other.looked_up
    assert dict(own.costs).keys() == dict(other.costs).keys()
    for name, cost in own.costs.items():
        assert cost.us == pytest.approx(other.costs[name].us)
        assert replace(cost, us=0.0) == replace(other.costs[name], us=0.0)
    assert found.facts | {"date": ""} == {**expected.facts, "date": ""}


def test_waits_of_one_host_are_those_in_the_whole_run(fleet: Fleet, folder: Path) -> None:
    whole = collectives(load(folder))
    alone = load(folder / "b.xplane.pb")
    found = collectives(alone, fleet.met_by(fleet.recording("b")))
    assert found.stragglers == whole.stragglers
    assert found.alignment_us == whole.alignment_us
    # `c` comes 40 µs later than `b` to all but short collectives.
    waits = [row.wait_us / row.per_step_count for row in found.rows if row.wait_us]
    assert max(waits) == pytest.approx(40.0)


def test_which_host_to_look_at(fleet: Fleet) -> None:
    assert fleet.recording("slowest").profile.hosts[0].name == "c"
    steps = sorted(one.step_us for one in fleet.digests)
    assert steps[0] <= fleet.typical.step_us <= steps[-1]
    with pytest.raises(BadInput, match="no host 'e' among the 4 of this run; expected typical"):
        fleet.recording("e")


def test_a_damaged_recording_is_named_and_left_out(folder: Path) -> None:
    builder = FleetBuilder()
    builder.add(0, digest(load(folder / "a.xplane.pb")))
    builder.add(1, Unread("b.xplane.pb", "b.xplane.pb is empty; was the profiler stopped?"))
    found = builder.build()
    text = "1 of 2 recordings could not be read, and are left out: b.xplane.pb is empty; was"
    assert [one.code for one in found.warnings][:1] == ["unread-hosts"]
    assert found.warnings[0].message.startswith(text)
    assert found.hosts.notes[0].startswith(text)
    nothing = FleetBuilder()
    nothing.add(0, Unread("b", "b is empty"))
    with pytest.raises(BadInput, match="^b is empty$"):
        nothing.build()


def test_nothing_of_a_recording_stays_but_its_digest(folder: Path) -> None:
    profile = load(folder / "a.xplane.pb")
    programs = [ref(program) for program in profile.programs.values()]
    events = ref(profile.events)
    kept = digest(profile, with_costs=True)
    del profile
    gc.collect()
    assert [found() for found in (events, *programs)] == [None] * (1 + len(programs))
    assert kept.has_steps and len(pickle.dumps(kept)) < 500_000


def test_of_long_recordings_some_steps_are_compared(
    folder: Path, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "MOST_COLLECTIVES", 250)
    few = fleet_of([load(file) for file in sorted(folder.iterdir())])
    assert 0 < few.hosts.matched < fleet.hosts.matched
    assert "in one of 2 steps" in few.hosts.notes[0]
    late = max(few.hosts.rows, key=lambda row: row.caused_us or 0.0)
    assert late.host == "c" and late.caused_us == pytest.approx(4_000, rel=0.2)
    assert few.summary.per_step == fleet.summary.per_step
    monkeypatch.setattr(digests, "MOST_COLLECTIVES", 40)
    first = digest(load(folder / "c.xplane.pb"))
    assert len(first.rows) == 40 and first.notes[0].startswith("only the first 40 collectives")


def test_programs_that_differ_get_the_name_of_their_host(folder: Path) -> None:
    profiles = [load(file) for file in sorted(folder.iterdir())[:3]]
    made = [digest(profile, with_costs=True) for profile in profiles]
    (name,) = made[0].hashes
    builder = FleetBuilder()
    for place, one in enumerate(made):
        other = replace(one, hashes={name: "other"}) if place else one
        builder.add(place, other)
    found = builder.build()
    names = sorted(program.name for program in found.summary.programs)
    assert names == [name, f"{name}@b"]
    # Their collectives are not the same, so only those of `b` and `c` meet.
    assert {row.host for row in found.hosts.rows if row.last_share is not None} == {"b", "c"}
    assert sorted(part.program for part in found.costs().programs) == names


def test_what_steps_leave_out_is_said_with_the_number_of_hosts() -> None:
    nothing = np.empty(0)
    rules = ("a rule; left out: 1 pause; left out: 2 slow", "a rule; left out: 1 pause", "b rule")
    steps = [Steps("executions", rule, nothing, nothing, nothing, nothing) for rule in rules]
    assert _rule(steps) == (
        "executions",
        "a rule (on 2 of 3 hosts); left out: 1 pause on 2 of 3 hosts; left out: 2 slow on 1 of 3 "
        "hosts",
    )
    assert _rule(steps[:1]) == ("executions", rules[0])
    assert _rule([steps[1]] * 2)[1] == "a rule; left out: 1 pause on each host"


def test_met_rows_follow_the_chosen_events(whole: Profile) -> None:
    met = meetings(match_collectives(whole))
    chosen = whole.event_devices == 1
    some = met.taken(chosen)
    kept = chosen[met.rows]
    starts = whole.events["start_ps"]
    assert 0 < len(some.rows) < len(met.rows)
    assert (starts[chosen][some.rows] == starts[met.rows[kept]]).all()
    assert (some.wait_ps == met.wait_ps[kept]).all()
