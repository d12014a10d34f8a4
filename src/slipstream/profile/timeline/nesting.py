"""Self time of operations that contain others.

    while       ██████████████████████
      fusion      █████   ████
    self time   ▒▒     ▒▒▒    ▒▒▒▒▒▒▒▒      of the while: where nothing inside it runs

Operations nest on lanes of role `ops` (TPU, XLA:CPU). On lanes of role `windows`, events have no
self time: a device spends none between the start and the done of an asynchronous operation. On
other lanes, an event's self time is its duration.
"""

from __future__ import annotations

import numpy as np

from slipstream.profile.events import Array
from slipstream.profile.profile import Profile


def self_durations(profile: Profile) -> Array:
    """Each event's self time, which excludes the operations inside it."""
    events = profile.events
    rows = _rows_on(profile, "ops")
    if not len(rows):
        return events["duration_ps"]
    from slipstream.profile.grouping import self_times

    times = events["duration_ps"].copy()
    times[_rows_on(profile, "windows")] = 0
    times[rows] = self_times(*(events[c][rows] for c in ("lane", "start_ps", "duration_ps")))
    return times


def self_intervals(profile: Profile) -> tuple[Array, Array, Array]:
    """(row of the event, start, duration) of every interval of an event's self time."""
    events = profile.events
    rows = _rows_on(profile, "ops")
    if not len(rows):
        return np.arange(len(events)), events["start_ps"], events["duration_ps"]
    from slipstream.profile.grouping import innermost

    columns = (events[c][rows] for c in ("lane", "start_ps", "duration_ps"))
    owner, start, end = innermost(*columns)
    others = np.ones(len(events), bool)
    others[rows] = False
    flat = np.flatnonzero(others)
    return (
        np.concatenate((rows[owner], flat)),
        np.concatenate((start, events["start_ps"][flat])),
        np.concatenate((end - start, events["duration_ps"][flat])),
    )


def _rows_on(profile: Profile, role: str) -> Array:
    """The events on lanes of a role."""
    fits = np.array([lane.role == role for lane in profile.lanes], bool)
    if not fits.any():
        return np.empty(0, np.int64)
    return np.flatnonzero(fits[profile.events["lane"]])
