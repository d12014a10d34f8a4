"""Durations of many executions in bounded memory: their values and how often each occurred.

Values are exact until there are more than `MOST` different ones. From then on they are rounded, to
as many binary digits as that number allows: the figures of kernels that vary by a quarter are off
by 0.05% at most.
"""

from __future__ import annotations

import numpy as np

from slipstream.profile.events import Array

MOST = 1024
"""different values that are kept"""
DIGITS = 24
"""binary digits of the finest rounding"""


class Durations:
    """A multiset of durations, to which those of other hosts can be added."""

    def __init__(self, values: Array | None = None, counts: Array | None = None) -> None:
        self._values = [] if values is None else [np.asarray(values, np.float64).ravel()]
        self._counts = [np.ones(len(v), np.int64) for v in self._values]
        if counts is not None:
            self._counts = [counts]
        self._compact()

    def add(self, other: Durations) -> None:
        self._values += other._values
        self._counts += other._counts
        if sum(map(len, self._values)) > 2 * MOST:
            self._compact()

    def __len__(self) -> int:
        return int(sum(int(counts.sum()) for counts in self._counts))

    @property
    def least(self) -> float:
        return float(min(values.min() for values in self._values))

    @property
    def most(self) -> float:
        return float(max(values.max() for values in self._values))

    def at(self, index: int) -> float:
        """The value at an index of the sorted durations."""
        self._compact()
        ends = np.cumsum(self._counts[0])
        return float(self._values[0][np.searchsorted(ends, index, side="right")])

    @property
    def median(self) -> float:
        count = len(self)
        low, high = self.at((count - 1) // 2), self.at(count // 2)
        return low + (high - low) / 2

    def _compact(self) -> None:
        if not self._values:
            return
        values, counts = _counted(np.concatenate(self._values), np.concatenate(self._counts))
        digits = DIGITS
        while len(values) > MOST:
            values, counts = _counted(_rounded(values, digits), counts)
            digits -= 1
        self._values, self._counts = [values], [counts]


def _counted(values: Array, counts: Array) -> tuple[Array, Array]:
    found, place = np.unique(values, return_inverse=True)
    return found, np.bincount(place.ravel(), counts, len(found)).astype(np.int64)


def _rounded(values: Array, digits: int) -> Array:
    mantissa, exponent = np.frexp(values)
    rounded: Array = np.ldexp(np.rint(np.ldexp(mantissa, digits)), exponent - digits)
    return rounded
