"""Is one program faster than another? Interleaved step times in, a verdict with an interval out.

Rounds go A B, B A, or B A, A B, so that drift (clocks, heat, neighbours) affects both alike. Which
of them comes next is random, so that regular disturbances (garbage collection) do the same.
Each round gives one ratio; the estimate is the median of all pairwise means of their logarithms
(Hodges-Lehmann), and its interval comes from ranks (Wilcoxon), so that outliers move neither.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import TypeVar

import numpy as np

CONFIDENCE = 0.95
NEGLIGIBLE = 0.002
"""a smaller change counts as none, however certain it is"""
TOO_WIDE = 0.02
"""an interval wider than this on either side of the estimate allows no verdict"""
MIN_ROUNDS = 8
"""rounds that any verdict needs"""

T = TypeVar("T")


@dataclass(frozen=True)
class Comparison:
    """One arm against the baseline: relative change of the step time, negative is faster."""

    verdict: str
    """`faster`, `slower`, `no different` or `can't tell`"""
    change: float
    low: float
    high: float
    """bounds of the change"""
    confidence: float
    rounds: int
    before_us: float
    after_us: float
    """medians"""
    why: str


def round_order(arms: Sequence[T], number: int) -> list[T]:
    """The arms in the order of one round: a random one and its reverse in turn.

    The order depends on the number alone: it is the same on all ranks.
    """
    order = list(arms)
    random.Random(number // 2).shuffle(order)
    return order if number % 2 == 0 else order[::-1]


def compare(
    before_s: Sequence[float], after_s: Sequence[float], comparisons: int = 1
) -> Comparison:
    """The verdict on paired step times; the interval allows for all `comparisons` (Bonferroni)."""
    count = min(len(before_s), len(after_s))
    before, after = list(before_s[:count]), list(after_s[:count])
    medians = (median(before) * 1e6, median(after) * 1e6) if count else (0.0, 0.0)
    confidence = 1 - (1 - CONFIDENCE) / max(comparisons, 1)
    if count < MIN_ROUNDS:
        why = f"only {count} rounds were timed; a verdict needs at least {MIN_ROUNDS}"
        return Comparison("can't tell", 0.0, -1.0, 1.0, confidence, count, *medians, why)
    logs = np.log(np.asarray(after) / np.asarray(before))
    needed = fewest_rounds(confidence)
    if count < needed:
        middle = math.expm1(_hodges_lehmann(logs, CONFIDENCE)[0])
        why = f"{count} rounds were timed; with this many comparisons a verdict needs {needed}"
        return Comparison("can't tell", middle, -1.0, 1.0, confidence, count, *medians, why)
    middle, low, high = (math.expm1(x) for x in _hodges_lehmann(logs, confidence))
    verdict, why = _verdict(middle, low, high)
    return Comparison(verdict, middle, low, high, confidence, count, *medians, why)


def fewest_rounds(confidence: float) -> int:
    """Rounds that this confidence needs: the widest interval of n ranks misses 2 in 2^n times."""
    return max(MIN_ROUNDS, math.ceil(1 - math.log2(1 - confidence)))


def _hodges_lehmann(values: np.ndarray, confidence: float) -> tuple[float, float, float]:
    """(estimate, low, high) of the centre of symmetric noise."""
    n = len(values)
    upper = np.triu_indices(n)
    means = np.sort((values[upper[0]] + values[upper[1]]) / 2)
    spread = math.sqrt(n * (n + 1) * (2 * n + 1) / 24)
    quantile = NormalDist().inv_cdf(0.5 + confidence / 2)
    rank = max(int(n * (n + 1) / 4 - quantile * spread), 0)
    return float(np.median(means)), float(means[rank]), float(means[len(means) - 1 - rank])


def _verdict(middle: float, low: float, high: float) -> tuple[str, str]:
    if high < 0 and middle < -NEGLIGIBLE:
        return "faster", "the whole interval lies below zero"
    if low > 0 and middle > NEGLIGIBLE:
        return "slower", "the whole interval lies above zero"
    if high - middle > TOO_WIDE or middle - low > TOO_WIDE:
        return (
            "can't tell",
            "step times vary too much: the interval is wider than the effect sought",
        )
    return "no different", "zero lies inside the interval, or the change is negligible"
