"""Counters over time: how busy each device is, and the traffic on its links."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from slipstream.analyses.network.flows import Rates, device_flows
from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, COPY
from slipstream.profile.timeline.segments import ANY_KIND, kind_mask

MAX_BINS = 20_000
"""most points of a counter"""
MIN_BIN_PS = 10**7
"""shorter bins would show single kernels, which the slices show anyway"""
SHARES = {
    "busy": ANY_KIND,
    "compute": kind_mask(COMPUTE),
    "communication": kind_mask(COMMUNICATION),
    "copies": kind_mask(COPY),
}


@dataclass(frozen=True)
class DeviceCounter:
    """One counter of one device; each value holds until the next time."""

    device: int
    name: str
    unit: str
    times_ps: Array
    values: Array


def counters(profile: Profile) -> Iterator[DeviceCounter]:
    """The share of time each device is busy, by kind, and the bytes per second on each link."""
    yield from _shares(profile)
    flows = device_flows(profile, None)
    lanes = sorted({(flow.link, flow.direction) for flow in flows})
    for link, direction in lanes:
        own = [flow for flow in flows if (flow.link, flow.direction) == (link, direction)]
        for device in range(len(profile.devices)):
            rates = Rates.of([flow.take(flow.owner == device) for flow in own])
            if rates.rates.any():
                times = rates.times.astype(np.int64)
                # Of several changes at one time, the last gives the rate.
                kept = np.append(times[1:] != times[:-1], True)
                name = f"{link}, {direction}"
                yield DeviceCounter(device, name, "GB/s", times[kept], rates.rates[kept] * 1e3)


def _shares(profile: Profile) -> Iterator[DeviceCounter]:
    for device, own in profile.segments.by_device():
        begin, end = int(own.start_ps.min()), int(own.end_ps.max())
        width = max(MIN_BIN_PS, -(-(end - begin) // MAX_BINS))
        edges = np.arange(begin, end + width, width)
        covered = own.covered(list(SHARES.values()), edges[:-1], edges[1:])
        for name, times in zip(SHARES, covered, strict=True):
            values = np.append(100.0 * times / width, 0.0)
            changes = np.flatnonzero(np.diff(values, prepend=np.nan) != 0)
            if values.any():
                yield DeviceCounter(device, name, "%", edges[changes], values[changes])
