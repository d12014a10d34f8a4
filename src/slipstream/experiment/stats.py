"""Is one program faster than another? Interleaved timings in, a verdict that knows its noise out.

Rounds go A B, B A, A B, …: what drifts (clocks, heat, neighbours) drifts for both. Each round gives
one ratio; the estimate is the median of all pairwise means of their logarithms (Hodges-Lehmann),
and its interval comes from the ranks (Wilcoxon), so that a few odd steps move neither.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, median

import numpy as np

CONFIDENCE = 0.95
NEGLIGIBLE = 0.002
"""a change smaller than this is none, however sure one is of it"""
VAGUE = 0.02
"""an interval wider than this on either side of the estimate says nothing"""
FEWEST = 8
"""rounds without which there is no verdict"""


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


def compare(
    before_s: Sequence[float], after_s: Sequence[float], comparisons: int = 1
) -> Comparison:
    """The verdict on paired step times; with several arms, the interval is that much wider."""
    count = min(len(before_s), len(after_s))
    before, after = list(before_s[:count]), list(after_s[:count])
    medians = (median(before) * 1e6, median(after) * 1e6) if count else (0.0, 0.0)
    confidence = 1 - (1 - CONFIDENCE) / max(comparisons, 1)
    if count < FEWEST:
        why = f"only {count} rounds were timed; {FEWEST} are the least that say anything"
        return Comparison("can't tell", 0.0, -1.0, 1.0, confidence, count, *medians, why)
    logs = np.log(np.asarray(after) / np.asarray(before))
    needed = fewest_rounds(confidence)
    if count < needed:
        middle = math.expm1(_hodges_lehmann(logs, CONFIDENCE)[0])
        why = f"{count} rounds were timed; with so many comparisons it takes {needed} to be sure"
        return Comparison("can't tell", middle, -1.0, 1.0, confidence, count, *medians, why)
    middle, low, high = (math.expm1(x) for x in _hodges_lehmann(logs, confidence))
    verdict, why = _verdict(middle, low, high)
    return Comparison(verdict, middle, low, high, confidence, count, *medians, why)


def fewest_rounds(confidence: float) -> int:
    """The widest interval of n ranks misses with a chance of 2 in 2^n: fewer can't be so sure."""
    return max(FEWEST, math.ceil(1 - math.log2(1 - confidence)))


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
    if high - middle > VAGUE or middle - low > VAGUE:
        return (
            "can't tell",
            "step times vary too much: the interval is wider than the effect sought",
        )
    return "no different", "zero lies inside the interval, or the change is negligible"
