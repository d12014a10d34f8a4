"""Runs: every execution of every program on every device, one row each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.nesting import self_durations


@dataclass(frozen=True)
class Runs:
    """Executions as columns, by device, program and start."""

    device: Array
    program: Array
    """text index of `name(id)`; 0 for events without a program, which count as one run"""
    start_ps: Array
    end_ps: Array
    launch: Array
    """id of the first launch"""
    events: Array
    """number of events"""
    busy_ps: Array
    """sum of the events' self times"""

    def __len__(self) -> int:
        return len(self.device)

    def take(self, rows: Array) -> Runs:
        columns = (self.device, self.program, self.start_ps, self.end_ps, self.launch)
        return Runs(*(column[rows] for column in (*columns, self.events, self.busy_ps)))


def find_runs(profile: Profile) -> Runs:
    """All executions in a profile, including partial ones."""
    from slipstream.profile.grouping import group_spans

    events = profile.events
    groups, firsts = _groups(profile)
    times = (events["start_ps"], events["duration_ps"])
    start, end, launch, size, busy = group_spans(groups, *times, events["correlation"], len(firsts))
    own = self_durations(profile)
    if own is not events["duration_ps"]:
        busy = np.bincount(groups, own, len(firsts)).astype(np.int64)
    device = profile.device_of_lane[events.cells("lane", firsts)]
    program = events.cells("program", firsts)
    found = Runs(device, program, start, end, launch, size, busy)
    return found.take(np.lexsort((start, program, device)))


def _groups(profile: Profile) -> tuple[Array, Array]:
    """(run of each event, first row of each run)."""
    from slipstream.profile.grouping import first_rows, group_pairs

    events = profile.events
    number = events["execution"]
    alone = events.is_tagged("program") and (np.diff(events.tagged("program")) == 0).all()
    if alone and len(profile.devices) == 1 and len(events):
        # Executions of one program on one device are numbered from 0 without gaps.
        firsts = first_rows(number, int(number.max()) + 1)
        if (firsts >= 0).all():
            return number, firsts
    groups, firsts = group_pairs(number, events["program"])
    if len(profile.devices) > 1:
        groups, firsts = group_pairs(groups.astype(np.int64), profile.event_devices)
    return groups, firsts
