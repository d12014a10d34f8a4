"""Latency of transfers between slices (Megascale's RPCs) over time.

Events are read as in XProf: they are written when a transfer ends; transfers without ids or without
a duration don't count, nor do those within one slice, which don't use the network.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.profile.events import Array
from slipstream.profile.profile import Profile

PERCENTILES = (50, 90, 99, 100)
RECEIVE = "Transport Receive"


@dataclass(frozen=True)
class Percentiles:
    """Percentiles of the durations of some transfers."""

    count: int
    p50_us: float
    p90_us: float
    p99_us: float
    most_us: float


@dataclass(frozen=True)
class Pair:
    """Transfers from one slice to another."""

    source_slice: int
    destination_slice: int
    bytes: float
    latency: Percentiles


@dataclass(frozen=True)
class Latency:
    """How long transfers took."""

    all: Percentiles
    pairs: tuple[Pair, ...]
    """by median, slowest first"""
    bins: tuple[Percentiles | None, ...]
    """over time, in the same bins as the bandwidths; None where nothing arrived"""
    left_out: dict[str, int]
    """number of transfers left out, by reason: `no ids`, `no duration`, `same slice`"""


@dataclass(frozen=True)
class Arrivals:
    """The counted transfers, as columns."""

    start_ps: Array
    duration_ps: Array
    bytes: Array
    label: Array
    source: Array
    destination: Array
    host: Array
    left_out: dict[str, int]

    def __len__(self) -> int:
        return len(self.start_ps)


def arrivals(profile: Profile, start_ps: float, end_ps: float) -> Arrivals:
    """The transfers that arrived in the window, except those that don't count."""
    table = profile.transfers
    wanted = [index for index, text in enumerate(table.texts) if RECEIVE in text]
    rows = np.flatnonzero(np.isin(table["name"], wanted))
    end = table["start_ps"][rows] + table["duration_ps"][rows]
    rows = rows[(end >= start_ps) & (end <= end_ps)]
    left_out: dict[str, int] = {}
    checks = (
        ("no ids", table["has_ids"]),
        ("no duration", table["duration_ps"] > 0),
        ("same slice", table["source_slice"] != table["destination_slice"]),
    )
    for why, valid in checks:
        good = valid[rows]
        if not good.all():
            left_out[why] = int((~good).sum())
        rows = rows[good]
    names = ("start_ps", "duration_ps", "bytes", "label", "source_slice", "destination_slice")
    hosts = np.array([lane.host for lane in profile.lanes], np.int32)
    start, duration, size, label, source, target = (table[name][rows] for name in names)
    host = hosts[table["lane"][rows]]
    return Arrivals(start, duration, size, label, source, target, host, left_out)


def latency(found: Arrivals, edges: Array) -> Latency | None:
    """Percentiles of all transfers, of each pair of slices, and over time; None without any."""
    if not len(found):
        return None
    us = found.duration_ps / 1e6
    place = np.searchsorted(edges, found.start_ps + found.duration_ps, side="left") - 1
    place = np.clip(place, 0, len(edges) - 2)
    bins = [us[place == number] for number in range(len(edges) - 1)]
    keys = np.stack((found.source, found.destination), axis=1)
    pairs = []
    for source, destination in np.unique(keys, axis=0).tolist():
        own = (found.source == source) & (found.destination == destination)
        size = float(found.bytes[own].sum())
        pairs.append(Pair(source, destination, size, percentiles(us[own])))
    pairs.sort(key=lambda pair: -pair.latency.p50_us)
    over_time = tuple(percentiles(part) if len(part) else None for part in bins)
    return Latency(percentiles(us), tuple(pairs), over_time, found.left_out)


def percentiles(us: Array) -> Percentiles:
    return Percentiles(len(us), *(float(x) for x in np.percentile(us, PERCENTILES)))
