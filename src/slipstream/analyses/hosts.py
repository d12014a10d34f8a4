"""The processes of a run compared: which are slow, which wait, and how well clocks agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.analyses.collectives import Meetings, Straggler, stragglers
from slipstream.analyses.skew import MatchedCollectives, match_collectives
from slipstream.analyses.summary import Summary, step_splits
from slipstream.inline import Inline
from slipstream.profile.events import Array, median
from slipstream.profile.profile import Profile

NOTICEABLE = 0.05
"""a device whose compute is this much longer than that of the others may be slow"""

MANY = 32
"""devices from which on the order of the run says little"""


@dataclass(frozen=True)
class HostRow:
    """One device of one process; times are medians over its steps."""

    host: str
    device: str
    model: str
    steps: int
    step_us: float
    compute_us: float
    """time in which it computes, which excludes waits for others"""
    exposed_communication_us: float
    idle_us: float
    clock_offset_us: float | None
    """how far its host's clock is ahead of the first host's, from the ends of collectives"""
    start_skew_us: float | None
    """how much later than the first device it begins a step, on aligned clocks; median"""
    last_share: float | None
    """share of matched collectives to which it arrived last"""
    caused_us: float | None
    """how long the others waited for it, mean per step"""
    waited_us: float | None
    """how long it waited for others, mean per step"""


@dataclass(frozen=True)
class Slow:
    """A device that computes longer than the others, by more than steps vary."""

    row: HostRow
    others_us: float
    """compute of a step of the other devices, median"""

    @property
    def excess(self) -> float:
        return self.row.compute_us / self.others_us - 1


@dataclass(frozen=True)
class Hosts(Inline):
    """Processes and devices of a run."""

    hosts: int
    devices: int
    clock: str
    """how clocks were aligned: by `collectives`, `recorded` (start of profiling), `one` (a single
    process) or `unknown`"""
    matched: int
    """number of collectives that several devices recorded"""
    alignment_us: float | None
    """median spread of one collective's ends after the clocks were aligned"""
    alignment_95_us: float | None
    """the 95th percentile of that spread"""
    compute_spread: float | None
    """how much longer the slowest device computes than the median device, as a share"""
    rows: tuple[HostRow, ...]
    notes: tuple[str, ...] = ()
    slow: tuple[Slow, ...] = ()

    @property
    def ranked(self) -> tuple[HostRow, ...]:
        """The rows in the order of the run; of many, those first that the others wait for most."""
        if len(self.rows) <= MANY:
            return self.rows
        return tuple(sorted(self.rows, key=lambda row: (-(row.caused_us or 0.0), -row.compute_us)))


@dataclass(frozen=True)
class FleetContext:
    """What is known of a run, of which one recording is looked at in detail."""

    detail: str
    """a sentence: which recording that is"""
    summary: Summary
    """of all hosts"""
    hosts: Hosts
    met: Meetings
    """the collectives of that recording, matched with those of all hosts"""


def hosts(profile: Profile) -> Hosts:
    """Skew between processes, stragglers, and clock offsets."""
    return compared(match_collectives(profile), step_splits(profile))


def compared(matched: MatchedCollectives, splits: Array) -> Hosts:
    """The hosts of matched collectives, with `step_splits` of their profile."""
    profile = matched.profile
    found = tuple(_rows(profile, matched, splits))
    computing = [row.compute_us for row in found if row.compute_us]
    spread = max(computing) / float(median(computing)) - 1 if len(computing) > 1 else None
    apart = matched.end_spreads if len(matched) else None
    notes = list(matched.skipped)
    if len(profile.devices) < 2:
        notes.append("only one device was recorded: there is nothing to compare it with")
    elif not len(matched):
        notes.append("no collective was recorded by two devices: waits between them are unknown")
    return Hosts(
        hosts=len(profile.hosts),
        devices=len(profile.devices),
        clock=_clock(profile, matched),
        matched=len(matched),
        alignment_us=None if apart is None else float(median(apart)) / 1e6,
        alignment_95_us=None if apart is None else float(np.percentile(apart, 95)) / 1e6,
        compute_spread=spread,
        rows=found,
        notes=tuple(notes),
        slow=_slow(profile, found, splits),
    )


def _slow(profile: Profile, rows: tuple[HostRow, ...], splits: Array) -> tuple[Slow, ...]:
    """Devices with noticeably more compute, in nearly all of their steps, than the others have."""
    of = profile.steps.device
    compute = splits[:, 1] / 1e6
    found = []
    for device, row in enumerate(rows):
        own, others = compute[of == device], compute[of != device]
        if not len(own) or not len(others):
            continue
        usual = float(median(others))
        is_longer = row.compute_us > usual * (1 + NOTICEABLE)
        if usual and is_longer and np.percentile(own, 10) > np.percentile(others, 90):
            found.append(Slow(row, usual))
    return tuple(found)


def _clock(profile: Profile, matched: MatchedCollectives) -> str:
    if len(profile.hosts) == 1:
        return "one"
    if len(matched) and np.isfinite(matched.offsets_ps).sum() > 1:
        return "collectives"
    doubted = any(warning.code == "clock-skew" for warning in profile.warnings)
    return "unknown" if doubted else "recorded"


def _rows(profile: Profile, matched: MatchedCollectives, splits: Array) -> list[HostRow]:
    steps = profile.steps
    splits = splits / 1e6 if len(steps) else np.empty((0, 8))
    by_device = {(one.host, one.device): one for one in stragglers(matched)}
    skews = _start_skews(profile, matched)
    found = []
    for index, device in enumerate(profile.devices):
        own = splits[steps.device == index]
        middle = median(own) if len(own) else np.zeros(8)
        host = profile.hosts[device.host].name
        late: Straggler | None = by_device.get((host, device.name))
        offset = float(matched.offsets_ps[device.host]) if len(matched) else np.nan
        found.append(
            HostRow(
                host=host,
                device=device.name,
                model=device.model,
                steps=len(own),
                step_us=float(middle[0]),
                compute_us=float(middle[1]),
                exposed_communication_us=float(middle[3]),
                idle_us=float(middle[6]),
                clock_offset_us=offset / 1e6 if np.isfinite(offset) else None,
                start_skew_us=skews.get(index),
                last_share=late.last_share if late else None,
                caused_us=late.caused_us if late else None,
                waited_us=late.waited_us if late else None,
            )
        )
    return found


def _start_skews(profile: Profile, matched: MatchedCollectives) -> dict[int, float]:
    """Median, over steps that several devices ran, of how late each begins on aligned clocks."""
    if not len(matched):
        return {}
    steps = profile.steps
    offset = matched.offsets_ps[matched.hosts]
    begins: dict[int, dict[int, float]] = {}
    for row in range(len(steps)):
        device = int(steps.device[row])
        if np.isfinite(offset[device]):
            start = float(steps.start_ps[row]) - float(offset[device])
            begins.setdefault(int(steps.number[row]), {})[device] = start
    late: dict[int, list[float]] = {}
    for times in begins.values():
        if len(times) > 1:
            for device, start in times.items():
                late.setdefault(device, []).append((start - min(times.values())) / 1e6)
    return {device: float(median(values)) for device, values in late.items()}
