"""Scans along time against a check of every moment."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slipstream.profile.timeline import scans
from slipstream.profile.timeline.concurrency import (
    TOP,
    Grouped,
    Serialized,
    longest_overlaps,
    serialize,
)

Rows = list[tuple[int, int, int]]
"""(kind, start, duration), in order of start"""

segments = st.lists(
    st.tuples(st.integers(0, 2), st.integers(-10, 30), st.integers(0, 12)), max_size=14
).map(lambda rows: sorted(rows, key=lambda row: row[1]))
windows = st.lists(st.tuples(st.integers(-15, 40), st.integers(0, 30)), max_size=5)
masks = st.integers(0, 7)


def columns(rows: Rows) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(start, duration, kind)"""
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 1], table[:, 2], table[:, 0].astype(np.uint8)


def moments(rows: Rows, mask: int) -> set[int]:
    return {
        t
        for kind, start, duration in rows
        if mask >> kind & 1
        for t in range(start, start + duration)
    }


@given(segments, masks, windows)
def test_unions_cover_what_is_in_them(rows, mask, spans):
    opens, closes, before = scans.union(*columns(rows), mask)
    inside = {t for a, b in zip(opens, closes, strict=True) for t in range(int(a), int(b))}
    assert inside == moments(rows, mask)
    assert (opens[1:] > closes[:-1]).all()
    assert before.tolist() == [sum(t < a for t in inside) for a in opens.tolist()]
    starts = np.array([a for a, _ in spans], np.int64)
    ends = starts + np.array([size for _, size in spans], np.int64)
    expected = [len(inside & set(range(a, a + size))) for a, size in spans]
    assert scans.covered((opens, closes, before), starts, ends).tolist() == expected


@given(segments, st.lists(masks, min_size=1, max_size=4), st.lists(st.integers(-20, 50)))
def test_time_covered_until_each_time(rows, wanted, times):
    times = sorted(times)
    found = scans.covered_until(*columns(rows), np.array(wanted), np.array(times, np.int64))
    assert found.tolist() == [
        [sum(at < time for at in moments(rows, mask)) for time in times] for mask in wanted
    ]


@given(segments)
def test_what_is_hidden_of_each(rows):
    hides = np.array([0, 1, 3])
    found = scans.hidden(*columns(rows), hides)
    assert found.tolist() == [
        len(moments([row], 7) & moments(rows, int(hides[row[0]]))) for row in rows if hides[row[0]]
    ]


@given(segments, windows.map(sorted))
def test_gaps_are_moments_that_nothing_fills(rows, spans):
    opens = np.array([a for a, _ in spans], np.int64)
    closes = opens + np.array([size for _, size in spans], np.int64)
    start, duration, _ = columns(rows)
    found = [tuple(gap) for gap in zip(*(c.tolist() for c in scans.gaps(start, duration, opens, closes)), strict=True)]  # noqa: E501  # fmt: skip
    busy = moments(rows, 7)
    for window, (a, size) in enumerate(spans):
        idle = set(range(a, a + size)) - busy
        own = [gap for gap in found if gap[2] == window]
        assert sorted(t for gap in own for t in range(gap[0], gap[1])) == sorted(idle)
        assert all(first[1] < second[0] for first, second in zip(own, own[1:], strict=False))
    for _, end, window, after in found:
        if after < 0:
            assert all(a < end for _, a, size in rows if size)
        else:
            assert rows[after][2] > 0
            # The window ends, or what comes after begins.
            assert end == min(rows[after][1], int(closes[window]))


def owner_at(rows: Rows, mask: int, time: int) -> int | None:
    """The last to begin of those that run, of those the shortest, of those the last."""
    running = [
        (start, -duration, row)
        for row, (kind, start, duration) in enumerate(rows)
        if mask >> kind & 1 and start <= time < start + duration
    ]
    return max(running)[2] if running else None


@given(segments, masks)
def test_flat_time_is_of_the_last_to_begin(rows, mask):
    starts, ends, owners = (column.tolist() for column in serialize(*columns(rows), mask))
    told = {
        t: owner
        for start, end, owner in zip(starts, ends, owners, strict=True)
        for t in range(start, end)
    }
    assert sum(b - a for a, b in zip(starts, ends, strict=True)) == len(told)
    assert starts == sorted(starts)
    expected = {t: owner_at(rows, mask, t) for t in moments(rows, mask)}
    assert told == expected


@st.composite
def two_devices(draw: st.DrawFn) -> tuple[list[tuple[int, int, int, int]], list[Rows]]:
    asides = st.tuples(
        st.integers(0, 1), st.integers(0, 3), st.integers(-10, 30), st.integers(0, 20)
    )
    kernels = st.lists(
        st.tuples(st.integers(0, 9), st.integers(0, 3), st.integers(0, 6)), max_size=8
    )
    devices = []
    for _ in range(2):
        at, rows = -5, []
        for kernel, apart, length in draw(kernels):
            rows.append((kernel, at + apart, length))
            at += apart + length
        devices.append(rows)
    return draw(st.lists(asides, min_size=1, max_size=8)), devices


@given(two_devices(), st.sampled_from((1, 8, 1 << 20)))
def test_hiders_are_those_that_ran_longest_beside(made, cells):
    asides, devices = made
    table = np.array(asides, np.int64)
    every = np.array([row for rows in devices for row in rows], np.int64).reshape(-1, 3)
    found = _hiders(
        Grouped(table[:, 2], table[:, 2] + table[:, 3], table[:, 0], table[:, 1]),
        Serialized(
            every[:, 1],
            every[:, 1] + every[:, 2],
            every[:, 0],
            np.cumsum([0, *(len(rows) for rows in devices)]),
        ),
        cells,
    )
    for group in range(max(row[1] for row in asides) + 1):
        times: dict[int, int] = {}
        for device, own, start, length in asides:
            for kernel, begin, size in devices[device] if own == group else ():
                both = min(begin + size, start + length) - max(begin, start)
                times[kernel] = times.get(kernel, 0) + max(both, 0)
        best = sorted(((-time, kernel) for kernel, time in times.items() if time))[:TOP]
        assert found[group] == [(kernel, -time) for time, kernel in best]


def _hiders(asides: Grouped, beside: Serialized, cells: int) -> list[list[tuple[int, int]]]:
    """As lists, with another limit of sums at a time."""
    from unittest.mock import patch

    with patch("slipstream.profile.timeline.concurrency.CELLS", cells):
        best, times = longest_overlaps(asides, beside)
    pairs = zip(best.tolist(), times.tolist(), strict=True)
    return [[(k, t) for k, t in zip(*pair, strict=True) if k >= 0] for pair in pairs]
