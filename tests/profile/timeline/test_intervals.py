"""Unions of intervals against a bitmap of the time they cover."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slipstream.profile.timeline.intervals import IntervalUnion

HORIZON = 60
intervals = st.lists(st.tuples(st.integers(-20, 30), st.integers(-3, 20)), max_size=12)
windows = st.lists(st.tuples(st.integers(-30, 60), st.integers(0, 40)), min_size=1, max_size=6)


def union(rows: list[tuple[int, int]]) -> IntervalUnion:
    table = np.array(rows, np.int64).reshape(-1, 2)
    return IntervalUnion.of(table[:, 0], table[:, 1])


def bitmap(rows: list[tuple[int, int]]) -> set[int]:
    return {t for start, duration in rows for t in range(start, start + duration)}


@given(intervals, windows)
def test_covered_time_is_that_of_a_bitmap(rows, spans):
    found = union(rows)
    filled = bitmap(rows)
    assert found.length == len(filled)
    starts = np.array([start for start, _ in spans])
    ends = starts + [size for _, size in spans]
    expected = [len(filled & set(range(start, start + size))) for start, size in spans]
    assert found.covered(starts, ends).tolist() == expected


@given(intervals)
def test_merged_intervals_are_sorted_apart_and_whole(rows):
    found = union(rows)
    assert (found.starts < found.ends).all()
    assert (found.starts[1:] > found.ends[:-1]).all()
    pieces = zip(found.starts.tolist(), (found.ends - found.starts).tolist(), strict=True)
    assert bitmap(list(pieces)) == bitmap(rows)


def test_nothing_covers_nothing():
    found = union([])
    assert found.length == 0
    assert found.covered(np.array([0, 5]), np.array([5, 9])).tolist() == [0, 0]


def test_times_of_days_in_picoseconds():
    week = 7 * 24 * 3600 * 10**12
    found = union([(week, 10), (week + 5, 10), (week + 20, 1)])
    assert found.length == 16
    assert found.covered(np.array([0]), np.array([2 * week])).tolist() == [16]
