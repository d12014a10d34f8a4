"""What the devices did, stretch by stretch, in order: what most analyses look at.

A stretch is an event; where operations nest, the part of one in which nothing inside it runs.
They are sorted once, by device and start, and every sweep along time goes over them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.intervals import Union
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, COPY, kinds
from slipstream.profile.timeline.nesting import own_intervals

ANY = 1 << COMPUTE | 1 << COMMUNICATION | 1 << COPY
"""a mask of all kinds"""


def only(*wanted: int) -> int:
    """A mask of some kinds."""
    return sum(1 << kind for kind in wanted)


@dataclass(frozen=True, eq=False)
class Stretches:
    """Stretches of one device, or of several one after another, each in order of start."""

    row: Array
    """of the event"""
    kind: Array
    start_ps: Array
    duration_ps: Array
    ends: Array
    """where the stretches of each device end"""

    def __len__(self) -> int:
        return len(self.row)

    @cached_property
    def end_ps(self) -> Array:
        return self.start_ps + self.duration_ps

    def of(self, device: int) -> Stretches:
        """Those of one device."""
        begin = int(self.ends[device - 1]) if device else 0
        if begin == 0 and self.ends[device] == len(self):
            return self
        part = slice(begin, int(self.ends[device]))
        columns = (self.row, self.kind, self.start_ps, self.duration_ps)
        row, kind, start, duration = (column[part] for column in columns)
        return Stretches(row, kind, start, duration, np.array([part.stop - begin]))

    def by_device(self) -> Iterator[tuple[int, Stretches]]:
        """Each device that did something, with its stretches."""
        for device in np.flatnonzero(np.diff(self.ends, prepend=0)).tolist():
            yield device, self.of(device)

    def union(self, mask: int = ANY) -> Union:
        """When something of these kinds runs; of one device's stretches."""
        from slipstream.profile.timeline import scans

        return Union(*scans.union(self.start_ps, self.duration_ps, self.kind, mask))

    def covered(
        self, masks: Sequence[int], starts: Array, ends: Array, kind: Array | None = None
    ) -> Array:
        """How much of each window stretches of each mask (a row each) cover, of one device."""
        from slipstream.profile.timeline import scans

        times = np.sort(np.concatenate((starts, ends)))
        columns = (self.start_ps, self.duration_ps, self.kind if kind is None else kind)
        until = scans.filled(*columns, np.array(masks, np.int64), times)
        at_end, at_start = (np.searchsorted(times, edge) for edge in (ends, starts))
        inside: Array = until[:, at_end] - until[:, at_start]
        return inside


def find_stretches(profile: Profile) -> Stretches:
    """The stretches of all devices, by device and start."""
    row, start, duration = own_intervals(profile)
    kind = kinds(profile)
    if len(profile.devices) == 1:
        ends = np.array([len(row)])
        order = np.argsort(start, kind="stable") if (start[1:] < start[:-1]).any() else None
    else:
        device = profile.event_devices[row]
        order = np.lexsort((start, device))
        sizes = np.bincount(device, minlength=len(profile.devices) + 1)
        ends = np.cumsum(sizes)[: len(profile.devices)]
        # Events of no device come last, and are nobody's.
        order = order[: int(ends[-1]) if len(ends) else 0]
    if order is None:
        return Stretches(row, kind[row], start, duration, ends)
    row = order if _is_whole(row, profile) else row[order]
    return Stretches(row, kind[row], start[order], duration[order], ends)


def _is_whole(row: Array, profile: Profile) -> bool:
    """Whether every event is one stretch, in the order of the events."""
    return len(row) == len(profile.events) and not any(x.role == "ops" for x in profile.lanes)
