"""Unions of intervals, and how much of a window they cover.

events    ████████      ████
              ██████████            lanes overlap
union     ██████████████████        `Union`: merged, sorted
covered   between two times: a difference of two look-ups
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.profile.events import Array


@dataclass(frozen=True)
class Union:
    """Merged intervals, with their running total length."""

    starts: Array
    ends: Array
    before: Array
    """length of all intervals before each one"""

    @classmethod
    def of(cls, starts: Array, durations: Array) -> Union:
        """The union of intervals given in any order; empty ones don't count."""
        real = durations > 0
        if not real.all():
            starts, durations = starts[real], durations[real]
        if not len(starts):
            empty = np.empty(0, np.int64)
            return cls(empty, empty, empty)
        if (np.diff(starts) < 0).any():
            order = np.argsort(starts, kind="stable")
            starts, durations = starts[order], durations[order]
        reach = np.maximum.accumulate(starts + durations)
        opens = np.concatenate(([True], starts[1:] > reach[:-1]))
        firsts = np.flatnonzero(opens)
        lasts = np.append(firsts[1:], len(starts)) - 1
        merged, ends = starts[firsts], reach[lasts]
        lengths = ends - merged
        return cls(merged, ends, np.cumsum(lengths) - lengths)

    @property
    def length(self) -> int:
        return int((self.ends - self.starts).sum())

    def covered(self, starts: Array, ends: Array) -> Array:
        """How much of each window [start, end) the union covers."""
        return self._until(ends) - self._until(starts)

    def _until(self, times: Array) -> Array:
        """Length of the union before each time."""
        if not len(self.starts):
            return np.zeros(len(times), np.int64)
        place = np.searchsorted(self.starts, times, side="right") - 1
        inside = np.minimum(times, self.ends[place]) - self.starts[place]
        return np.where(place < 0, 0, self.before[place] + np.maximum(inside, 0))
