"""Several hosts as one profile."""

from __future__ import annotations

from dataclasses import replace

from builders import PS, STEP, profile, program
from slipstream.profile.host_merge import merge_hosts
from slipstream.profile.profile import Profile
from slipstream.profile.validation import validate

NOON = 1_704_110_400 * 10**9


def host(name: str, start_ns: int | None = NOON, op: str = "dot.1", annotated: bool = True):
    built = profile().kernel(op, 10)
    if annotated:
        built.annotation(0, 0, 20)
    found = built.build()
    return replace(found, hosts=(replace(found.hosts[0], name=name, start_ns=start_ns),))


def merged(*profiles: Profile) -> Profile:
    found = merge_hosts(profiles)
    validate(found)
    return found


def texts(table, column: str) -> list[str]:
    return [table.text(column, row) for row in range(len(table))]


def test_one_profile_is_itself():
    one = host("a")
    assert merge_hosts([one]) is one


def test_indices_move_and_texts_stay():
    found = merged(host("a"), host("b", NOON + 5000, "add.7", annotated=False), host("c"))
    assert [h.name for h in found.hosts] == ["a", "b", "c"]
    assert [d.host for d in found.devices] == [0, 1, 2]
    assert [(lane.host, lane.device) for lane in found.lanes] == [
        (0, 0), (0, None), (1, 1), (2, 2), (2, None),
    ]  # fmt: skip
    assert found.events["lane"].tolist() == [0, 2, 3]
    assert texts(found.events, "op") == ["dot.1", "add.7", "dot.1"]
    assert found.host_events["lane"].tolist() == [1, 4]
    assert texts(found.host_events, "name") == ["train", "train"]
    assert found.host_events["is_step"].tolist() == [True, True]


def test_times_count_from_the_first_to_begin():
    found = merged(host("a", NOON + 7000), host("b", NOON), host("c", NOON + 1))
    assert found.events["start_ps"].tolist() == [7 * PS, 0, 1000]
    assert found.host_events["start_ps"].tolist() == [7 * PS, 0, 1000]
    assert found.warnings == ()


def test_a_host_that_does_not_say_when_it_began():
    found = merged(host("a", NOON + 7000), host("b", None), host("c", NOON))
    assert found.events["start_ps"].tolist() == [0, 0, 0]
    assert [(w.code, w.message) for w in found.warnings] == [
        (
            "clock-skew",
            "b did not record when profiling began, so each host's times count from its own "
            "start; on a timeline, only compare times within one host (`hosts` and `collectives` "
            "correct for it)",
        )
    ]


def test_clocks_that_cannot_be_of_one_run():
    """One host's clock was never set: moving its events by 54 years would not fit 64 bits."""
    found = merged(host("a", 10**15 + 1), host("b", NOON))
    assert found.events["start_ps"].tolist() == [0, 0]
    (warning,) = found.warnings
    assert warning.code == "clock-skew"
    assert warning.message.startswith(
        "by their clocks, some hosts recorded 473,086 hours after the others: either a clock is "
        "wrong, or these are two runs"
    )


def test_equal_programs_are_one():
    found = merged(host("a"), host("b"))
    assert list(found.programs) == [STEP]
    assert texts(found.events, "program") == [STEP, STEP]


def test_unequal_programs_of_one_name_are_distinguished():
    processes = [host("b", None, op=f"dot.{number}") for number in (2, 3, 4)]
    found = merged(host("a"), *processes)
    names = [STEP, f"{STEP}@b", f"{STEP}@b#2", f"{STEP}@b#3"]
    assert texts(found.events, "program") == names
    assert list(found.programs) == names
    for number, name in enumerate(names, 1):
        assert f"dot.{number}" in found.programs[name]


def test_a_program_that_only_one_host_kept():
    """Hosts of one run number their programs alike, so one copy serves them all."""
    silent = profile(known=False).kernel("dot.1", 10).build()
    found = merged(host("a"), replace(silent, hosts=host("b").hosts))
    assert texts(found.events, "program") == [STEP, STEP]
    assert list(found.programs) == [STEP]


def test_warnings_of_all_hosts_are_kept():
    one = profile().kernel("dot.1", 1).warn("a", "first").build()
    two = profile().kernel("dot.1", 1).warn("b", "second").build()
    hosts = [host("x").hosts, host("y").hosts]
    found = merge_hosts([replace(p, hosts=h) for p, h in zip((one, two), hosts, strict=True)])
    assert [w.code for w in found.warnings] == ["a", "b"]


def test_a_host_without_events():
    empty = replace(profile().build(), hosts=host("idle").hosts)
    found = merged(empty, host("busy", NOON + 1000))
    assert found.events["start_ps"].tolist() == [1 * PS]
    assert found.event_devices.tolist() == [1]
    assert found.programs[STEP].content_hash == program(STEP, ["dot.1"]).content_hash
