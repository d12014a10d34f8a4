"""Checks of a recording: warnings to read before trusting its numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slipstream.profile.events import Array, distinct
from slipstream.profile.host_merge import ONLY_WITHIN
from slipstream.profile.profile import Profile, ProfileWarning
from slipstream.units import format_time

ACTIVITY_LIMIT = 2 * 1024 * 1024
"""device events that JAX's profiler keeps by default (gpu_max_activity_api_events)"""
LONGEST_PS = 24 * 3600 * 10**12
"""no recording is longer than a day; sums of longer times may not fit into 64 bits"""
SKEW_PS = 10**9
"""hosts whose collectives end further apart than this don't share a clock"""
_RUNS_ON_GPU = ("GpuExecutable::ExecuteThunks", "cuLaunchKernel", "cuGraphLaunch")


def add_data_quality_warnings(profile: Profile) -> Profile:
    """Add a warning for each thing that is missing or doubtful in the recording."""
    checks = (
        _no_device_events,
        _dropped_events,
        _too_few_steps,
        _uneven_executions,
        clock_skew,
        _unattributed_time,
        _impossible_times,
    )
    return profile.with_warnings(*(warning for check in checks for warning in check(profile)))


def _no_device_events(profile: Profile) -> Iterator[ProfileWarning]:
    """No device events, although the host may have launched device work."""
    if len(profile.events):
        return
    names = profile.host_events.texts
    used = distinct(profile.host_events["name"]).tolist()
    launched = any(names[i].startswith(_RUNS_ON_GPU) or "ExecuteThunks" in names[i] for i in used)
    if launched or profile.devices:
        yield ProfileWarning(
            "empty-device-trace",
            "the host launched device work, but no device events were recorded: another profiler "
            "probably holds CUPTI (DCGM, Nsight Systems, a second JAX profiler); stop it, for DCGM "
            "with `dcgmi profile --pause`, and record again",
        )
    else:
        yield ProfileWarning(
            "no-device",
            "no device events were recorded, and the host launched no device work while profiling; "
            "start the profiler before the steps, and block on their results before stopping it",
        )


def _dropped_events(profile: Profile) -> Iterator[ProfileWarning]:
    """Exactly as many events as the profiler keeps: it silently drops the rest."""
    runs = profile.runs
    counts = np.bincount(runs.device, runs.events, len(profile.devices))
    hosts: dict[int, int] = {}
    for device, count in zip(profile.devices, counts, strict=False):
        if device.kind == "gpu":
            hosts[device.host] = hosts.get(device.host, 0) + int(count)
    for host, count in hosts.items():
        if ACTIVITY_LIMIT * 0.999 <= count <= ACTIVITY_LIMIT:
            yield ProfileWarning(
                "dropped-events",
                f"{profile.hosts[host].name} recorded {count:,} device events, the profiler's "
                "limit, so later events are missing; record fewer steps, or raise "
                "gpu_max_activity_api_events",
            )


def _too_few_steps(profile: Profile) -> Iterator[ProfileWarning]:
    """Fewer than two whole steps, because the recording cut off the others."""
    rule = profile.steps.rule
    if "cut off" in rule and profile.steps.count < 2:
        yield ProfileWarning(
            "truncated",
            f"{'only one' if profile.steps.count else 'no'} complete step was recorded ({rule}), "
            "which is too little to tell how steps vary; record at least three",
        )


def _uneven_executions(profile: Profile) -> Iterator[ProfileWarning]:
    """Executions in the middle of the recording with fewer events than the others."""
    runs = profile.runs
    for index in distinct(runs.program).tolist():
        name = profile.events.texts[index]
        sizes = runs.events[runs.program == index]
        if not name or len(sizes) < 3 or name not in profile.programs:
            continue
        usual = np.median(sizes)
        short = int((sizes < 0.9 * usual).sum())
        if short > 2 * len(profile.devices):
            yield ProfileWarning(
                "uneven-executions",
                f"{short} of {len(sizes)} executions of {name} have less than 90% of the median "
                f"{usual:.0f} events: either events were dropped, or the program branches; if it "
                "doesn't branch, record fewer steps",
            )


def clock_skew(profile: Profile) -> Iterator[ProfileWarning]:
    """Hosts whose clocks disagree about the end of collectives, which all hosts end together."""
    if len(profile.hosts) < 2 or any(one.code == "clock-skew" for one in profile.warnings):
        return
    ends = _collective_ends(profile)
    first, known, times = next(ends, (0, np.empty(0), np.empty(0)))
    for host, keys, own_times in ends:
        _, own, others = np.intersect1d(keys, known, True, return_indices=True)
        if len(own) < 3:
            continue
        offset = float(np.median(own_times[own] - times[others]))
        if abs(offset) > SKEW_PS:
            yield ProfileWarning(
                "clock-skew",
                f"collectives end {format_time(abs(offset))} {'later' if offset > 0 else 'earlier'}"
                f" on {profile.hosts[host].name} than on {profile.hosts[first].name}, so the two "
                f"hosts' clocks differ as recorded; {ONLY_WITHIN}",
            )


def _collective_ends(profile: Profile) -> Iterator[tuple[int, Array, Array]]:
    """For each host: (itself, which execution of which collective, when that ended there)."""
    from slipstream.profile.timeline.kinds import COMMUNICATION, kinds

    rows = np.flatnonzero(kinds(profile) == COMMUNICATION)
    hosts = np.array([device.host for device in profile.devices], np.int32)
    host = hosts[profile.event_devices[rows]]
    order = np.argsort(host, kind="stable")
    used = distinct(host)
    for one, own in zip(
        used.tolist(), np.split(rows[order], np.searchsorted(host[order], used[1:])), strict=False
    ):
        yield (one, *_ends(profile, own))


def _ends(profile: Profile, rows: Array) -> tuple[Array, Array]:
    """(which execution of which collective, when it ended) of events of one host."""
    events = profile.events
    device = profile.event_devices[rows]
    named = events.cells("instruction", rows)
    label = np.where(named, named, events.cells("name", rows)).astype(np.int64)
    start = events.cells("start_ps", rows)
    order = np.lexsort((start, label, device))
    new = np.diff(device[order], prepend=-1) | np.diff(label[order], prepend=-1)
    begins = np.maximum.accumulate(np.where(new, np.arange(len(order)), 0))
    count = np.arange(len(order)) - begins
    # Of a host's devices, the first.
    keys, firsts = np.unique(label[order] << 32 | count, return_index=True)
    return keys, (start + events.cells("duration_ps", rows))[order][firsts]


def _unattributed_time(profile: Profile) -> Iterator[ProfileWarning]:
    """Device time of known programs that matches no instruction."""
    events = profile.events
    if events.is_tagged("instruction") and events.tagged("instruction").all():
        return
    if events["instruction"].all():
        return
    own = events["program"] != 0
    total = float(events["duration_ps"][own].sum())
    lost = float(events["duration_ps"][own & (events["instruction"] == 0)].sum())
    if total and lost / total > 0.005:
        yield ProfileWarning(
            "unattributed",
            f"{lost / total:.1%} of the device time could not be attributed to an instruction; "
            "to list the kernels, run: slipstream ops PATH --by kernel",
        )


def _impossible_times(profile: Profile) -> Iterator[ProfileWarning]:
    """Events that take less than no time, or last longer than any recording."""
    events = profile.events
    if not len(events):
        return
    start, duration = events["start_ps"], events["duration_ps"]
    is_negative = int(duration.min()) < 0
    # Python's integers: the difference of two times may not fit into 64 bits.
    span_ps = max(int(start.max()) - int(start.min()), int(duration.max()))
    if is_negative or span_ps > LONGEST_PS:
        what = "negative durations" if is_negative else "times more than a day apart"
        yield ProfileWarning(
            "impossible-times",
            f"device events have {what}, so the recording is damaged, and none of its times can be "
            "trusted; record it again",
        )
