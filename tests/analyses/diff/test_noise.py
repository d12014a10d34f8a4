"""Shifts and their intervals, against every ordering of two samples."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.analyses.diff.noise import _depth, _rank_counts, shift


def plain_counts(before: int, after: int) -> list[int]:
    """How often each number of the pairs is the wrong way round, over all orders."""
    counts = [0] * (before * after + 1)
    for places in combinations(range(before + after), before):
        others = [at for at in range(before + after) if at not in places]
        counts[sum(a < b for a in others for b in places)] += 1
    return counts


@pytest.mark.parametrize(("before", "after"), [(1, 1), (2, 3), (4, 4), (3, 6)])
def test_ranks(before, after):
    assert _rank_counts(before, after) == plain_counts(before, after)


def test_known_intervals():
    """The tables of Mann and Whitney: 10 and 10 samples, 5%: 23; 8 and 8: 13."""
    assert _depth(10, 10)[0] == 24
    assert _depth(8, 8)[0] == 14
    assert _depth(3, 3) == (1, pytest.approx(0.9))
    assert _depth(2, 2) == (1, pytest.approx(2 / 3))
    assert _depth(1, 1) == (1, 0.0)


samples = st.lists(st.floats(-100, 100), min_size=1, max_size=8)


@given(before=samples, after=samples)
def test_a_shift_is_the_median_difference(before, after):
    found = shift(before, after)
    every = [b - a for a in before for b in after]
    assert found.estimate == pytest.approx(np.median(every))
    assert min(every) <= found.low <= found.estimate + 1e-9
    assert found.estimate - 1e-9 <= found.high <= max(every)
    assert found.is_sure == (found.confidence >= 0.9 - 1e-9)
    assert found.certain == 0 or found.low * found.high > 0


def test_intervals_hold_the_truth_as_often_as_they_say():
    rng = np.random.default_rng(7)
    held = [
        (found := shift(rng.normal(0, 1, 5), rng.normal(1, 1, 6))).low <= 1 <= found.high
        for _ in range(2000)
    ]
    assert np.mean(held) == pytest.approx(found.confidence, abs=0.02)


def test_many_samples_are_thinned():
    found = shift(np.zeros(10_000), np.ones(10_000))
    assert (found.estimate, found.low, found.high) == (1, 1, 1)
