"""Hosts on one clock, for timelines: a collective ends on all ranks at once.

    host a   ████ all-reduce ▏             host a   ████ all-reduce ▏
    host b        ███ all-reduce ▏    →    host b    ███ all-reduce ▏

Each host's times move by the median of how much later its collectives end (`skew`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from slipstream.analyses.skew import match_collectives
from slipstream.profile.events import Array, Table
from slipstream.profile.profile import Profile

LEAST_PS = 1_000_000
"""clocks that differ by less than this stay as they are"""


def on_one_clock(profile: Profile) -> Profile:
    """The profile with each host's times moved; itself, if clocks agree or can't be compared."""
    if len(profile.hosts) < 2:
        return profile
    offsets = match_collectives(profile).offsets_ps
    offsets = np.where(np.isfinite(offsets), offsets, 0.0).astype(np.int64)
    if not (np.abs(offsets) >= LEAST_PS).any():
        return profile
    host_of_lane = np.array([lane.host for lane in profile.lanes], np.int64)
    by = offsets[host_of_lane]
    return replace(
        profile,
        events=_moved(profile.events, by),
        host_events=_moved(profile.host_events, by),
        transfers=_moved(profile.transfers, by),
    )


def _moved(table: Table, offsets: Array) -> Table:
    """The table with its starts moved by the offset of their lanes."""
    if not len(table):
        return table
    starts = table["start_ps"] - offsets[table["lane"]]
    return table.replace(start_ps=starts)
