"""Runs: every execution of every program on every device, one row each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.profile.events import Array
from slipstream.profile.nesting import own_times
from slipstream.profile.profile import Profile


@dataclass(frozen=True)
class Runs:
    """Executions as columns, by device, program and start."""

    device: Array
    program: Array
    """text index of `name(id)`; 0 for events of no program, which count as one run"""
    start_ps: Array
    end_ps: Array
    launch: Array
    """the first launch"""
    events: Array
    busy_ps: Array
    """sum of the events' own times"""

    def __len__(self) -> int:
        return len(self.device)

    def take(self, rows: Array) -> Runs:
        columns = (self.device, self.program, self.start_ps, self.end_ps, self.launch)
        return Runs(*(column[rows] for column in (*columns, self.events, self.busy_ps)))


def find_runs(profile: Profile) -> Runs:
    """All executions that a profile shows, partial ones too."""
    from slipstream.profile.grouping import group_pairs, group_spans

    events = profile.events
    groups, firsts = group_pairs(events["execution"], events["program"])
    if len(profile.devices) > 1:
        groups, firsts = group_pairs(groups.astype(np.int64), profile.event_devices)
    times = (events["start_ps"], events["duration_ps"])
    start, end, launch, size, busy = group_spans(groups, *times, events["correlation"], len(firsts))
    own = own_times(profile)
    if own is not events["duration_ps"]:
        busy = np.bincount(groups, own, len(firsts)).astype(np.int64)
    device, program = profile.event_devices[firsts], events["program"][firsts]
    found = Runs(device, program, start, end, launch, size, busy)
    return found.take(np.lexsort((start, program, device)))
