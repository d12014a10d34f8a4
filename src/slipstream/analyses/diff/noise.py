"""The shift between two samples, and its confidence interval.

before    ·  ·· ·            the median of all differences between an `after` and a `before` is the
after          · ·· ·        estimate (Hodges-Lehmann); leaving out as many from both ends as the
shift     ├────┼─────┤       ranks allow (Mann-Whitney) gives the interval

Few steps can't be conclusive: with three and three, the widest possible interval contains the true
shift nine times out of ten; with two and two, twice out of three.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from slipstream.profile.events import Array, median

CONFIDENCE = 0.95
LEAST_CONFIDENCE = 0.9
"""an interval of less confidence than this is inconclusive"""
MOST_SAMPLES = 40
"""of each side; larger samples are thinned evenly, which changes the result little"""


@dataclass(frozen=True)
class Shift:
    """How much the values of one sample lie above those of the other."""

    estimate: float
    low: float
    high: float
    confidence: float
    """how often such an interval contains the true shift"""

    @property
    def is_sure(self) -> bool:
        """Whether there were enough samples for the interval to be conclusive."""
        return self.confidence >= LEAST_CONFIDENCE - 1e-9

    @property
    def certain(self) -> float:
        """The part of the shift that is beyond noise: the end of the interval closest to zero."""
        if not self.is_sure or self.low <= 0 <= self.high:
            return 0.0
        return self.low if self.low > 0 else self.high


def shift(before: Sequence[float] | Array, after: Sequence[float] | Array) -> Shift:
    """The shift from one sample to the other; both must have at least one value."""
    first, second = _thinned(before), _thinned(after)
    differences = np.sort((second[:, None] - first[None, :]).ravel())
    depth, confidence = _depth(len(first), len(second))
    low, high = differences[depth - 1], differences[len(differences) - depth]
    return Shift(float(median(differences)), float(low), float(high), confidence)


def _thinned(values: Sequence[float] | Array) -> Array:
    found = np.asarray(values, np.float64)
    if len(found) <= MOST_SAMPLES:
        return found
    kept: Array = found[np.linspace(0, len(found) - 1, MOST_SAMPLES).round().astype(int)]
    return kept


@lru_cache(maxsize=256)
def _depth(before: int, after: int) -> tuple[int, float]:
    """(number of differences to leave out at each end, plus one; confidence of the rest)."""
    total = math.comb(before + after, before)
    depth, confidence, below = 1, 0.0, 0
    for rank, count in enumerate(_rank_counts(before, after), 1):
        below += count
        found = 1 - 2 * below / total
        if rank > 1 and found < CONFIDENCE:
            break
        depth, confidence = rank, max(found, 0.0)
    return depth, confidence


def _rank_counts(before: int, after: int) -> list[int]:
    """Number of orderings of both samples in which 0, 1, 2, … of the differences are negative.

    The coefficients of the Gaussian binomial: Π (1 − q^(after+i)) / (1 − q^i).
    """
    size = before * after + 1
    counts = [1] + [0] * (size - 1)
    for i in range(1, before + 1):
        for at in range(size - 1, after + i - 1, -1):
            counts[at] -= counts[at - after - i]
        for at in range(i, size):
            counts[at] += counts[at - i]
    return counts
