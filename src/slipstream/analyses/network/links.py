"""Links: how much each kind carries in each direction over time, and when it is saturated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slipstream.analyses.network.flows import DCN, ICI, LINK, NETWORK, Flow, Rates
from slipstream.analyses.network.problems import SATURATED
from slipstream.machines.machine import Machine
from slipstream.profile.events import Array, median
from slipstream.profile.profile import Profile
from slipstream.profile.simulated import is_simulated
from slipstream.profile.timeline.intervals import IntervalUnion
from slipstream.profile.timeline.kinds import COMPUTE
from slipstream.profile.timeline.segments import kind_mask

BINS = 240
BUSY = 0.7
"""share of a GPU link's published rate that collectives reach when the link limits them"""
NEAR = 0.005
"""regions closer than this share of the step are merged"""
SHORT = 0.001
"""regions shorter than this share of the step are not listed"""
WAITED = 0.1
"""share of a region in which the device must wait for the link to count as the limit"""
OPS_SHOWN = 4
MOST_REGIONS = 1000
"""per link and direction: those with the longest wait"""


@dataclass(frozen=True)
class Series:
    """One kind of link in one direction; rates are bytes per second, mean of devices or hosts."""

    link: str
    """`link` (NVLink, or whatever connects a host's GPUs), `network`, `host` (memory) or `dcn`"""
    direction: str
    """`each way`, `to device`, `to host`, `in` or `out`"""
    per: str
    """whose rate it is: `device` or `host`"""
    capacity: float | None
    capacity_of: str
    """what the capacity was taken from; empty if unknown"""
    per_step_bytes: float
    mean: float
    """over the steps, including idle time"""
    peak: float
    """of the busiest moment"""
    demand: float | None
    """share of the capacity needed if the bytes were spread over the whole step"""
    active_share: float
    """share of the time in which anything flows"""
    bound_share: float | None
    """share of the time in which it is saturated"""
    rates: tuple[float, ...]
    """over time, in bins"""


@dataclass(frozen=True)
class Region:
    """An interval in which a link limits the step: it is saturated, and the device waits for it."""

    link: str
    direction: str
    start_us: float
    end_us: float
    """from the start of the first step"""
    rate: float
    share: float
    """of the capacity"""
    exposed_us: float
    """the part of it in which the device does not compute"""
    ops: tuple[str, ...]
    """what flows in it, by bytes, largest first"""


class StepsWindow:
    """The time from the start of the first step to the end of the last."""

    def __init__(self, profile: Profile) -> None:
        steps = profile.steps
        has_steps = bool(len(steps))
        self.start = float(steps.start_ps.min()) if has_steps else 0.0
        self.end = float(steps.end_ps.max()) if has_steps else 1.0
        self.edges: Array = np.linspace(self.start, self.end, BINS + 1)
        lengths = steps.end_ps - steps.start_ps
        self.step_us = float(median(lengths)) / 1e6 if has_steps else 0.0
        self.steps = max(steps.count, 1)

    def cut(self, flow: Flow) -> Flow:
        """The part of a flow inside the window."""
        end = flow.start_ps + flow.duration_ps
        return flow.take((end > self.start) & (flow.start_ps < self.end))


class Link:
    """One kind of link in one direction."""

    def __init__(
        self,
        profile: Profile,
        window: StepsWindow,
        flows: Sequence[Flow],
        capacity: float | None,
        capacity_of: str,
    ) -> None:
        self.profile, self.window, self.flows = profile, window, flows
        self.capacity, self.capacity_of = capacity, capacity_of
        self.is_sliced = flows[0].link == DCN
        owners = profile.hosts if self.is_sliced else profile.devices
        self.count = max(len(owners), 1)
        busiest = np.zeros(self.count)
        for flow in flows:
            busiest += np.bincount(flow.owner, flow.bytes, self.count)
        self.busiest = int(busiest.argmax())
        self.one = Rates.of([flow.take(flow.owner == self.busiest) for flow in flows])
        self.most = (SATURATED if self.is_sliced else BUSY) * (capacity or np.inf) / 1e12
        # Simulated transfers share a TPU's links at rates that change. Each is drawn at its mean,
        # and where several are in flight, the sum of the means may be more than the link carries.
        is_mean = flows[0].link in (DCN, ICI) and is_simulated(profile)
        self.limit = capacity if is_mean and capacity else np.inf

    def series(self) -> Series:
        window = self.window
        total = Rates.of(self.flows)
        moved = total.moved(window.edges) / self.count
        span_s = (window.end - window.start) / 1e12
        mean = float(moved.sum()) / span_s
        bounds = _length(self.full)
        active = _length(self._inside(self.one.above(1e-300)))
        return Series(
            link=self.flows[0].link,
            direction=self.flows[0].direction,
            per="host" if self.is_sliced else "device",
            capacity=self.capacity,
            capacity_of=self.capacity_of,
            per_step_bytes=float(moved.sum()) / window.steps,
            mean=mean,
            peak=min(float(self.one.rates.max()) * 1e12, self.limit),
            demand=mean / self.capacity if self.capacity else None,
            active_share=active / (window.end - window.start),
            bound_share=bounds / (window.end - window.start) if self.capacity else None,
            rates=tuple(np.minimum(moved / span_s * BINS, self.limit).tolist()),
        )

    @cached_property
    def full(self) -> Array:
        """The intervals (start, end) in which the busiest device's link is saturated."""
        most = self.most if self.capacity else np.inf
        return self._inside(self.one.above(most))

    def regions(self) -> list[Region]:
        """The regions in which this link limits the step: it is saturated, and the device waits."""
        step = self.window.step_us * 1e6
        full = self.full
        if not len(full):
            return []
        apart = full[1:, 0] - full[:-1, 1] > NEAR * step
        firsts = np.concatenate(([True], apart))
        lasts = np.concatenate((apart, [True]))
        merged = np.stack((full[firsts, 0], full[lasts, 1]), axis=1)
        long = merged[merged[:, 1] - merged[:, 0] >= SHORT * step]
        starts, ends = long.astype(np.int64).T
        bare = (ends - starts) - self._computing().covered(starts, ends)
        waited = np.flatnonzero(bare >= WAITED * (ends - starts))
        waited = waited[np.argsort(-bare[waited], kind="stable")][:MOST_REGIONS]
        return self._described(starts[waited], ends[waited], bare[waited])

    def _described(self, starts: Array, ends: Array, bare: Array) -> list[Region]:
        shares = [flow.take(flow.owner == self.busiest) for flow in self.flows]
        flowing = [flow for flow in shares if len(flow.start_ps)]
        parts = np.stack([Rates.of([flow]).between(starts, ends) for flow in flowing])
        order = np.argsort(-parts, axis=0, kind="stable")[:OPS_SHOWN]
        rate = np.minimum(parts.sum(axis=0) / (ends - starts) * 1e12, self.limit)
        return [
            Region(
                self.flows[0].link,
                self.flows[0].direction,
                (float(starts[i]) - self.window.start) / 1e6,
                (float(ends[i]) - self.window.start) / 1e6,
                float(rate[i]),
                float(rate[i]) / self.capacity if self.capacity else 0.0,
                float(bare[i]) / 1e6,
                tuple(flowing[at].name for at in order[:, i].tolist() if parts[at, i] > 0),
            )
            for i in range(len(starts))
        ]

    def _computing(self) -> IntervalUnion:
        """When the busiest device (or any device of the busiest host) computes."""
        profile = self.profile
        if not self.is_sliced:
            return profile.segments.of(self.busiest).union(kind_mask(COMPUTE))
        parts = [
            own.union(kind_mask(COMPUTE))
            for device, own in profile.segments.by_device()
            if profile.devices[device].host == self.busiest
        ]
        starts = np.concatenate([part.starts for part in parts] or [np.empty(0, np.int64)])
        ends = np.concatenate([part.ends for part in parts] or [np.empty(0, np.int64)])
        return IntervalUnion.of(starts, ends - starts)

    def _inside(self, intervals: Array) -> Array:
        first, last = self.window.start, self.window.end
        seen = (intervals[:, 1] > first) & (intervals[:, 0] < last)
        inside: Array = np.clip(intervals[seen], first, last)
        return inside


def _length(intervals: Array) -> float:
    return float((intervals[:, 1] - intervals[:, 0]).sum())


def capacity_of(
    link: str, machine: Machine | None, slices: float | None
) -> tuple[float | None, str]:
    """(bytes per second in one direction, where the figure comes from)."""
    if link == DCN:
        if slices is None and machine is not None and machine.kind == "tpu":
            return machine.host_network_bandwidth, f"{machine.network.name}, of a host"
        return slices, "as given" if slices else ""
    if machine is None:
        return None, ""
    if link in (LINK, ICI):
        return machine.chip.link_bandwidth, f"{machine.chip.name}, {machine.chip.link}"
    if link == NETWORK:
        return machine.network.bandwidth, f"{machine.network.name}, one GPU's part"
    return machine.chip.host_bandwidth, f"{machine.chip.name}, host memory"
