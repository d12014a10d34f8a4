"""Unions of intervals, and how much of a window they cover.

events    ████████      ████
              ██████████            lanes overlap
union     ██████████████████        merged, sorted
covered   between two times: the difference of two look-ups
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.profile.events import Array


@dataclass(frozen=True)
class IntervalUnion:
    """Merged intervals, with their running total length."""

    starts: Array
    ends: Array
    before: Array
    """total length of the intervals before each one"""

    @classmethod
    def of(cls, starts: Array, durations: Array) -> IntervalUnion:
        """The union of intervals in any order; empty ones are ignored."""
        from slipstream.profile.timeline import scans

        starts, durations = (np.asarray(column, np.int64) for column in (starts, durations))
        if (starts[1:] < starts[:-1]).any():
            order = np.argsort(starts, kind="stable")
            starts, durations = starts[order], durations[order]
        return cls(*scans.union(starts, durations, np.zeros(len(starts), np.uint8), 1))

    @property
    def length(self) -> int:
        return int((self.ends - self.starts).sum())

    def covered(self, starts: Array, ends: Array) -> Array:
        """How much of each window [start, end) the union covers."""
        from slipstream.profile.timeline import scans

        return scans.covered((self.starts, self.ends, self.before), starts, ends)
