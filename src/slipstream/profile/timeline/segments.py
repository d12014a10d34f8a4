"""Segments: what each device did, in time order. Most analyses work on these.

A segment is an event; where operations nest, it is a part of an event in which nothing inside it
runs. Segments are sorted once, by device and start, and scanned many times.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.intervals import IntervalUnion
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, COPY, kinds
from slipstream.profile.timeline.nesting import self_intervals

ANY_KIND = 1 << COMPUTE | 1 << COMMUNICATION | 1 << COPY
"""the mask of all kinds"""


def kind_mask(*wanted: int) -> int:
    """The mask of the given kinds."""
    return sum(1 << kind for kind in wanted)


@dataclass(frozen=True, eq=False)
class Segments:
    """Segments as columns, by device and start."""

    row: Array
    """row of the event"""
    kind: Array
    start_ps: Array
    duration_ps: Array
    ends: Array
    """index at which the segments of each device end"""

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def end_ps(self) -> Array:
        return self.start_ps + self.duration_ps

    def of(self, device: int) -> Segments:
        """The segments of one device."""
        begin = int(self.ends[device - 1]) if device else 0
        if begin == 0 and self.ends[device] == len(self):
            return self
        part = slice(begin, int(self.ends[device]))
        columns = (self.row, self.kind, self.start_ps, self.duration_ps)
        row, kind, start, duration = (column[part] for column in columns)
        return Segments(row, kind, start, duration, np.array([part.stop - begin]))

    def by_device(self) -> Iterator[tuple[int, Segments]]:
        """(device, its segments) for each device that has any."""
        for device in np.flatnonzero(np.diff(self.ends, prepend=0)).tolist():
            yield device, self.of(device)

    def union(self, mask: int = ANY_KIND) -> IntervalUnion:
        """The time in which segments of these kinds run, for the segments of one device."""
        from slipstream.profile.timeline import scans

        return IntervalUnion(*scans.union(self.start_ps, self.duration_ps, self.kind, mask))

    def covered(
        self, masks: Sequence[int], starts: Array, ends: Array, kind: Array | None = None
    ) -> Array:
        """How much of each window one device's segments cover; one row per mask."""
        from slipstream.profile.timeline import scans

        times = np.sort(np.concatenate((starts, ends)))
        columns = (self.start_ps, self.duration_ps, self.kind if kind is None else kind)
        until = scans.covered_until(*columns, np.array(masks, np.int64), times)
        at_end, at_start = (np.searchsorted(times, edge) for edge in (ends, starts))
        inside: Array = until[:, at_end] - until[:, at_start]
        return inside


def find_segments(profile: Profile) -> Segments:
    """The segments of all devices, by device and start."""
    row, start, duration = self_intervals(profile)
    kind = kinds(profile)
    if len(profile.devices) == 1:
        ends = np.array([len(row)])
        order = np.argsort(start, kind="stable") if (start[1:] < start[:-1]).any() else None
    else:
        device = profile.event_devices[row]
        order = np.lexsort((start, device))
        sizes = np.bincount(device, minlength=len(profile.devices) + 1)
        ends = np.cumsum(sizes)[: len(profile.devices)]
        # Events of no device come last, and are dropped.
        order = order[: int(ends[-1]) if len(ends) else 0]
    if order is None:
        return Segments(row, kind[row], start, duration, ends)
    row = order if _is_whole(row, profile) else row[order]
    return Segments(row, kind[row], start[order], duration[order], ends)


def _is_whole(row: Array, profile: Profile) -> bool:
    """Whether every event is one segment, in the order of the events."""
    return len(row) == len(profile.events) and not any(x.role == "ops" for x in profile.lanes)
