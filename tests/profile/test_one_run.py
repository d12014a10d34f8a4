"""Recordings that belong to one run, and those that don't."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from builders import profile
from slipstream.errors import BadInput
from slipstream.profile.host_merge import merge_hosts
from slipstream.profile.one_run import Recorded, apart_ns
from slipstream.profile.profile import Profile
from slipstream.sources.load import load

NOON = 1_704_110_400 * 10**9
SECOND = 10**9


def recorded(
    machine: str, start_ns: int | None, program: str = "jit_step(1)", us: float = 1e6, gpu: int = 0
) -> Profile:
    """A second of one program on one GPU."""
    built = profile()
    built.devices.clear()
    made = built.device(f"GPU:{gpu}").execution_of(program).kernel("dot.1", us).build()
    source = f"logs/{machine}-{program.partition('(')[0]}-{us:g}.xplane.pb"
    host = replace(made.hosts[0], name=machine, source=source, start_ns=start_ns)
    return replace(made, hosts=(host,))


def refusal(*profiles: Profile) -> str:
    with pytest.raises(BadInput) as caught:
        merge_hosts(profiles)
    return str(caught.value)


def codes(*profiles: Profile) -> list[str]:
    return [warning.code for warning in merge_hosts(profiles).warnings]


@pytest.mark.parametrize(
    "profiles",
    [
        [recorded("a", NOON), recorded("b", NOON + SECOND // 2)],
        [recorded("a", NOON), recorded("b", NOON + 30 * SECOND)],
        [recorded("a", NOON), recorded("a", NOON + 5 * SECOND, gpu=1)],
        [recorded("a/7", NOON), recorded("a/8", NOON, gpu=1)],
    ],
)
def test_hosts_and_processes_of_one_run(profiles):
    assert codes(*profiles) == []


def test_a_device_that_was_recorded_twice_one_after_the_other():
    first, second = recorded("a", NOON), recorded("a", NOON + 5 * SECOND, us=2e6)
    assert refusal(first, second) == (
        "a-jit_step-1e+06.xplane.pb and a-jit_step-2e+06.xplane.pb both recorded GPU:0 of a, one "
        "after the other: they are not one run; read one of them (slipstream summary "
        "logs/a-jit_step-1e+06.xplane.pb), compare them (slipstream diff "
        "logs/a-jit_step-1e+06.xplane.pb logs/a-jit_step-2e+06.xplane.pb), or keep each run in its "
        "own folder and choose with --run"
    )
    # Nsight Systems appends the process.
    assert "one after the other" in refusal(recorded("a/7", NOON), recorded("a/8", NOON + SECOND))


def test_the_same_recording_twice():
    one = recorded("a", NOON)
    copy = replace(one, hosts=(replace(one.hosts[0], source="logs/copy.xplane.pb"),))
    assert "both recorded GPU:0 of a, with the same events" in refusal(one, copy)


def test_a_device_recorded_twice_at_once():
    """Right for one process per GPU: each calls its GPU 0."""
    pair = recorded("a", NOON), recorded("a", NOON + SECOND // 2, us=2e6)
    (warning,) = merge_hosts(pair).warnings
    assert warning.code == "same-device"
    assert "so it counts as two devices; that is right for one process per GPU" in warning.message
    assert codes(recorded("a", None), recorded("a", None, us=2e6)) == ["same-device", "clock-skew"]
    other = recorded("a", NOON + SECOND // 2, "jit_eval(1)")
    assert "and ran different programs (jit_step and jit_eval)" in refusal(pair[0], other)


def test_hosts_that_run_different_programs():
    one, other = recorded("a", NOON, "jit_first(1)"), recorded("b", NOON, "jit_second(2)")
    assert codes(one, other) == ["different-programs"]
    later = recorded("b", NOON + 3600 * SECOND, "jit_second(2)")
    assert "at other times: they are not one run" in refusal(one, later)


def test_hosts_far_apart_in_time():
    found = merge_hosts([recorded("a", NOON), recorded("b", NOON + 600 * SECOND)])
    (warning,) = found.warnings
    assert warning.code == "clock-skew"
    assert "some hosts recorded 10 minutes after the others: either a clock is" in warning.message
    assert found.events["start_ps"].tolist() == [0, 0]


def test_time_between_recordings():
    spans = [(0, 10), (30, 5), (2, 3), (50, 1)]
    made = [Recorded("x", frozenset(), s, s + n, 1, "", frozenset()) for s, n in spans]
    assert apart_ns(made) == 20
    assert apart_ns(made[:1]) == 0


def test_real_recordings_of_one_gpu_are_not_one_run(data: Path):
    names = ("off_default", "off_nolhs")
    with pytest.raises(BadInput, match="both recorded GPU:0 of vm, one after the other"):
        load([data / f"{name}.xplane.pb.gz" for name in names])
