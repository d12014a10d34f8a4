"""The processes of a run beside each other: who is slow, who waits, and how well clocks agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.analyses.collectives import Straggler, stragglers
from slipstream.analyses.skew import MatchedCollectives, match_collectives
from slipstream.analyses.summary import step_splits
from slipstream.profile.events import median
from slipstream.profile.profile import Profile

NOTICEABLE = 0.02
"""a device that computes this much longer than the median of all is slow"""


@dataclass(frozen=True)
class HostRow:
    """One device of one process; times are medians over its steps."""

    host: str
    device: str
    model: str
    steps: int
    step_us: float
    compute_us: float
    """time in which it computes: waiting for others is not in it"""
    exposed_communication_us: float
    idle_us: float
    clock_offset_us: float | None
    """how far ahead its host's clock is of the first host's, by the ends of collectives"""
    start_skew_us: float | None
    """how much later than the first device it begins a step, on one clock"""
    last_share: float | None
    """share of matched collectives to which it came last"""
    caused_us: float | None
    """what the others waited for it in a step"""
    waited_us: float | None


@dataclass(frozen=True)
class Hosts:
    """Processes and devices of a run."""

    hosts: int
    devices: int
    clock: str
    """what clocks were aligned by: `collectives`, `recorded` (when profiling began), `one` (a
    single process) or `unknown`"""
    matched: int
    """collectives that several devices recorded"""
    alignment_us: float | None
    """how far apart ends of one collective still are once clocks are aligned, the median"""
    alignment_95_us: float | None
    """the same for the worst but 5%"""
    compute_spread: float | None
    """how much longer the slowest device computes than the median one, as a share"""
    rows: tuple[HostRow, ...]
    notes: tuple[str, ...] = ()

    @property
    def slow(self) -> tuple[HostRow, ...]:
        """Devices that compute noticeably longer than the median."""
        if not self.rows:
            return ()
        usual = float(median([row.compute_us for row in self.rows]))
        return tuple(row for row in self.rows if row.compute_us > usual * (1 + NOTICEABLE))


def hosts(profile: Profile) -> Hosts:
    """Skew between processes, stragglers, and how well their clocks agree."""
    met = match_collectives(profile)
    found = tuple(_rows(profile, met))
    computing = [row.compute_us for row in found if row.compute_us]
    spread = max(computing) / float(median(computing)) - 1 if len(computing) > 1 else None
    apart = np.nanmax(met.ends, axis=1) - np.nanmin(met.ends, axis=1) if len(met) else None
    notes = list(met.skipped)
    if len(profile.devices) < 2:
        notes.append("one device was recorded: there is nothing to compare it with")
    elif not len(met):
        notes.append("no collective was recorded by two devices: who waits for whom is not known")
    return Hosts(
        len(profile.hosts),
        len(profile.devices),
        _clock(profile, met),
        len(met),
        None if apart is None else float(median(apart)) / 1e6,
        None if apart is None else float(np.percentile(apart, 95)) / 1e6,
        spread,
        found,
        tuple(notes),
    )


def _clock(profile: Profile, met: MatchedCollectives) -> str:
    if len(profile.hosts) == 1:
        return "one"
    if len(met) and np.isfinite(met.offsets_ps).sum() > 1:
        return "collectives"
    doubted = any(warning.code == "clock-skew" for warning in profile.warnings)
    return "unknown" if doubted else "recorded"


def _rows(profile: Profile, met: MatchedCollectives) -> list[HostRow]:
    steps = profile.steps
    splits = step_splits(profile) / 1e6 if len(steps) else np.empty((0, 8))
    by_device = {(one.host, one.device): one for one in stragglers(met)}
    skews = _start_skews(profile, met)
    found = []
    for index, device in enumerate(profile.devices):
        own = splits[steps.device == index]
        middle = median(own) if len(own) else np.zeros(8)
        host = profile.hosts[device.host].name
        late: Straggler | None = by_device.get((host, device.name))
        offset = float(met.offsets_ps[device.host]) if len(met) else np.nan
        found.append(
            HostRow(
                host,
                device.name,
                device.model,
                len(own),
                float(middle[0]),
                float(middle[1]),
                float(middle[3]),
                float(middle[6]),
                offset / 1e6 if np.isfinite(offset) else None,
                skews.get(index),
                late.last_share if late else None,
                late.caused_us if late else None,
                late.waited_us if late else None,
            )
        )
    return found


def _start_skews(profile: Profile, met: MatchedCollectives) -> dict[int, float]:
    """Median, over steps that several devices have, of how late each begins on one clock."""
    if not len(met):
        return {}
    steps = profile.steps
    offset = met.offsets_ps[met.hosts]
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
