"""What a reader must know of a recording before trusting its numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from slipstream.profile.events import distinct
from slipstream.profile.profile import Profile, ProfileWarning
from slipstream.units import format_time

ACTIVITY_LIMIT = 2 * 1024 * 1024
"""device events that JAX's profiler keeps by default (gpu_max_activity_api_events)"""
SKEW_PS = 10**9
"""hosts whose collectives end further apart than this don't share a clock"""
_RUNS_ON_GPU = ("GpuExecutable::ExecuteThunks", "cuLaunchKernel", "cuGraphLaunch")


def add_data_quality_warnings(profile: Profile) -> Profile:
    """The profile with warnings about what is missing or doubtful in it."""
    rules = (_empty, _dropped, _truncated, _unlike, _skewed, _unattributed)
    return profile.with_warnings(*(warning for rule in rules for warning in rule(profile)))


def _empty(profile: Profile) -> Iterator[ProfileWarning]:
    """A host that launched device work and recorded none of it."""
    if len(profile.events):
        return
    names = profile.host_events.texts
    used = distinct(profile.host_events["name"]).tolist()
    launched = any(names[i].startswith(_RUNS_ON_GPU) or "ExecuteThunks" in names[i] for i in used)
    if launched or profile.devices:
        yield ProfileWarning(
            "empty-device-trace",
            "the host ran work on a device, but no device event was recorded: another profiler "
            "held CUPTI (DCGM, Nsight Systems, a second JAX profiler); stop it (dcgmi profile "
            "--pause) and record again",
        )
    else:
        yield ProfileWarning(
            "no-device",
            "no device event was recorded and no device was used while recording; start the "
            "profiler before the steps and block on their results before stopping it",
        )


def _dropped(profile: Profile) -> Iterator[ProfileWarning]:
    """As many events as the profiler keeps: the rest was dropped in silence."""
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
                f"{profile.hosts[host].name} recorded {count:,} device events, which is the most "
                "that the profiler keeps: later ones are missing; record fewer steps, or raise "
                "gpu_max_activity_api_events",
            )


def _truncated(profile: Profile) -> Iterator[ProfileWarning]:
    """Executions without their beginning or end."""
    rule = profile.steps.rule
    if "cut off" in rule and profile.steps.count < 2:
        yield ProfileWarning(
            "truncated",
            f"only {profile.steps.count} whole step was recorded ({rule}); record at least three",
        )


def _unlike(profile: Profile) -> Iterator[ProfileWarning]:
    """Executions of one program with fewer events than the others, in the middle."""
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
                f"{short} of {len(sizes)} executions of {name} have less than 90% of the usual "
                f"{usual:.0f} events: events may be missing, or the program branches",
            )


def _skewed(profile: Profile) -> Iterator[ProfileWarning]:
    """Hosts whose collectives, which end together, end at different times."""
    if len(profile.hosts) < 2:
        return
    ends = _collective_ends(profile)
    first = min(ends, default=None)
    for host, times in ends.items():
        if host == first or first is None:
            continue
        shared = sorted(times.keys() & ends[first].keys())
        if len(shared) < 3:
            continue
        offset = float(np.median([times[k] - ends[first][k] for k in shared]))
        if abs(offset) > SKEW_PS:
            yield ProfileWarning(
                "clock-skew",
                f"collectives end {format_time(abs(offset))} {'later' if offset > 0 else 'earlier'}"
                f" on {profile.hosts[host].name} than on {profile.hosts[first].name}: their clocks "
                "differ, so compare times within a host only",
            )


def _collective_ends(profile: Profile) -> dict[int, dict[tuple[str, int], int]]:
    """For each host, when the n-th run of each collective ended there."""
    from slipstream.profile.timeline.kinds import COMMUNICATION, kinds

    events = profile.events
    rows = np.flatnonzero(kinds(profile) == COMMUNICATION)
    rows = rows[np.argsort(events["start_ps"][rows], kind="stable")]
    found: dict[int, dict[tuple[str, int], int]] = {}
    seen: dict[tuple[int, str], int] = {}
    for row in rows.tolist():
        device = int(profile.event_devices[row])
        label = events.text("instruction", row) or events.text("name", row)
        count = seen[device, label] = seen.get((device, label), -1) + 1
        end = int(events["start_ps"][row] + events["duration_ps"][row])
        found.setdefault(profile.devices[device].host, {})[label, count] = end
    return found


def _unattributed(profile: Profile) -> Iterator[ProfileWarning]:
    """Device time of known programs that fits no instruction."""
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
            f"{lost / total:.1%} of the device time could not be put down to an instruction; "
            "see: slipstream ops PATH --by kernel",
        )
