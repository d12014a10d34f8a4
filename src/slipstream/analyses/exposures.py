"""Exposed time of every collective and copy.

compute       ████████      ████
all-gather.1      ██████████            hidden by the two kernels, exposed between them
exposed               ░░░░░░
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.profile.timeline.concurrency import Serialized, serialize
from slipstream.profile.timeline.kinds import COMMUNICATION, COMPUTE, COPY
from slipstream.profile.timeline.scans import hidden
from slipstream.profile.timeline.segments import Segments, kind_mask


@dataclass(frozen=True)
class Exposures:
    """Collectives and copies as columns, by device and start."""

    row: Array
    """row of the event; where operations nest, an event can have several segments"""
    kind: Array
    start_ps: Array
    duration_ps: Array
    exposed_ps: Array

    def __len__(self) -> int:
        return len(self.row)

    def take(self, some: Array) -> Exposures:
        return self if some.all() else Exposures(*(column[some] for column in vars(self).values()))


def exposures(profile: Profile, whole: bool = False) -> Exposures:
    """Every collective and copy that starts in a step, with its exposed time."""
    inside = None
    if not whole and not profile.steps.cover_all_events(profile):
        inside = profile.steps.of_events(profile) < len(profile.steps)
    parts = [_of_device(own, inside) for _, own in profile.segments.by_device()]
    if not parts:
        empty = np.empty(0, np.int64)
        return Exposures(*(empty,) * 5)
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Exposures(*(_joined(column) for column in columns))


# A copy is also hidden by communication: the step waits for that instead.
_HIDES = np.zeros(3, np.int64)
_HIDES[COMMUNICATION], _HIDES[COPY] = kind_mask(COMPUTE), kind_mask(COMPUTE, COMMUNICATION)


def _of_device(own: Segments, inside: Array | None) -> Exposures:
    some = np.flatnonzero(own.kind)
    duration = own.duration_ps[some]
    exposed = duration - hidden(own.start_ps, own.duration_ps, own.kind, _HIDES)
    if inside is not None:
        kept = inside[own.row[some]]
        some, duration, exposed = some[kept], duration[kept], exposed[kept]
    return Exposures(own.row[some], own.kind[some], own.start_ps[some], duration, exposed)


def serialized_compute(profile: Profile) -> tuple[Serialized, Array]:
    """(compute with one kernel at a time per device, first row of each of its kernels).

    Where two kernels overlap, the time belongs to the one that began last.
    """
    from slipstream.profile.grouping import group_labels

    count = len(profile.devices)
    parts = [_serialized(profile.segments.of(device)) for device in range(count)]
    start, end, row = (_joined([part[column] for part in parts]) for column in range(3))
    groups, firsts = group_labels(profile.events, row)
    bounds = np.cumsum([0, *(len(part[0]) for part in parts)])
    return Serialized(start, end, groups, bounds), row[firsts]


def _serialized(own: Segments) -> tuple[Array, Array, Array]:
    """(start, end, row)"""
    start, end, at = serialize(own.start_ps, own.duration_ps, own.kind, kind_mask(COMPUTE))
    return start, end, own.row[at]


def _joined(parts: Sequence[Array]) -> Array:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.empty(0, np.int64)
