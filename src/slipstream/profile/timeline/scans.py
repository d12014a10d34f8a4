"""Native scans along time: each passes once over segments sorted by start.

A mask selects the kinds of segments that count, so no subset is ever copied out.
"""

from __future__ import annotations

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.events import Array


@native("i64(i64*, i64*, u8*, i64, i64, i64*, i64*, i64*)")
def _union(starts, durations, kinds, count, mask, opens, closes, before):  # type: ignore[no-untyped-def]
    used = 0
    total = np.int64(0)
    for i in range(count):
        if not (mask >> kinds[i]) & 1 or durations[i] <= 0:
            continue
        end = starts[i] + durations[i]
        if used and starts[i] <= closes[used - 1]:
            closes[used - 1] = max(closes[used - 1], end)
            continue
        if used:
            total += closes[used - 1] - opens[used - 1]
        opens[used] = starts[i]
        closes[used] = end
        before[used] = total
        used += 1
    return used


def union(starts: Array, durations: Array, kinds: Array, mask: int) -> tuple[Array, Array, Array]:
    """(start, end, total length of all before it) of each merged interval."""
    opens, closes, before = np.empty((3, len(starts)), np.int64)
    used = _union(*contiguous(starts, durations, kinds), len(starts), mask, opens, closes, before)
    return opens[:used], closes[:used], before[:used]


@inner
def last_before(opens, count, time, near):  # type: ignore[no-untyped-def]
    """Index of the last interval that opens at or before a time, or -1; searches from `near` on."""
    low = np.int64(-1)
    high = np.int64(count)
    step = np.int64(1)
    if near >= 0 and opens[near] <= time:
        low = near
        while low + step < count and opens[low + step] <= time:
            low += step
            step *= 2
        high = min(low + step, np.int64(count))
    elif near >= 0:
        high = near
        while high - step >= 0 and opens[high - step] > time:
            high -= step
            step *= 2
        low = max(high - step, np.int64(-1))
    while high - low > 1:
        middle = (low + high) // 2
        if opens[middle] <= time:
            low = middle
        else:
            high = middle
    return low


@native("i64(i64*, i64*, i64*, i64, i64*, i64*, i64, i64*)")
def _covered(opens, closes, before, count, starts, ends, rows, out):  # type: ignore[no-untyped-def]
    near = np.int64(-1)
    for row in range(rows):
        first = last_before(opens, count, starts[row], near)
        last = last_before(opens, count, ends[row], max(first, np.int64(0)))
        near = max(first, np.int64(0))
        length = np.int64(0)
        if last >= 0:
            length += before[last] + min(ends[row], closes[last]) - opens[last]
        if first >= 0:
            length -= before[first] + min(starts[row], closes[first]) - opens[first]
        out[row] = length
    return 0


def covered(merged: tuple[Array, Array, Array], starts: Array, ends: Array) -> Array:
    """How much of each window the merged intervals cover; fast if windows are nearly sorted."""
    out = np.zeros(len(starts), np.int64)
    if len(merged[0]):
        columns = contiguous(*merged)
        _covered(*columns, len(merged[0]), *as_int64(starts, ends), len(starts), out)
    return out


@native("i64(i64*, i64*, u8*, i64, i64*, i64, i64*, i64, i64*, i64*, i64*)")
def _covered_until(  # type: ignore[no-untyped-def]
    starts, durations, kinds, count, masks, classes, times, asked, total, reach, out
):
    """`reach` is the latest end so far: all time from here to there is covered."""
    at = 0
    for i in range(count + 1):
        while at < asked and (i == count or times[at] <= starts[i]):
            for one in range(classes):
                out[one * asked + at] = total[one] - max(np.int64(0), reach[one] - times[at])
            at += 1
        if i == count or at == asked:
            break
        for one in range(classes):
            if (masks[one] >> kinds[i]) & 1:
                end = starts[i] + durations[i]
                fresh = end - max(starts[i], reach[one])
                if fresh > 0:
                    total[one] += fresh
                    reach[one] = end
    return 0


def covered_until(
    starts: Array, durations: Array, kinds: Array, masks: Array, times: Array
) -> Array:
    """For each mask (rows), how much its segments cover up to each of the ascending times."""
    out = np.zeros((len(masks), len(times)), np.int64)
    total = np.zeros(len(masks), np.int64)
    reach = np.full(len(masks), np.iinfo(np.int64).min // 2, np.int64)
    columns = (*contiguous(starts, durations, kinds), len(starts))
    _covered_until(*columns, *_counted(masks), *_counted(times), total, reach, out)
    return out


@native("i64(i64*, i64*, u8*, i64, i64*, i64*, i64*, i64*, i64*, i64*, i64*)")
def _hidden(starts, durations, kinds, count, hides, total, reach, number, kind_of, end_of, out):  # type: ignore[no-untyped-def]
    """The few segments that still run are kept in a list, with what was covered when they began."""
    running = 0
    found = 0
    for i in range(count + 1):
        at = 0
        while at < running:
            end = end_of[at]
            if i < count and end > starts[i]:
                at += 1
                continue
            kind = kind_of[at]
            out[number[at]] += total[kind] - max(np.int64(0), reach[kind] - end)
            running -= 1
            number[at] = number[running]
            kind_of[at] = kind_of[running]
            end_of[at] = end_of[running]
        if i == count:
            break
        own = np.int64(kinds[i])
        end = starts[i] + durations[i]
        if hides[own]:
            out[found] = max(np.int64(0), reach[own] - starts[i]) - total[own]
            number[running] = found
            kind_of[running] = own
            end_of[running] = end
            running += 1
            found += 1
        for kind in range(3):
            if (hides[kind] >> own) & 1:
                fresh = end - max(starts[i], reach[kind])
                if fresh > 0:
                    total[kind] += fresh
                    reach[kind] = end
    return found


def hidden(starts: Array, durations: Array, kinds: Array, hides: Array) -> Array:
    """How much of each segment is covered by segments of the kinds in its kind's mask.

    One number for each segment whose kind has a mask (is not 0), in order; no kind hides itself.
    """
    out, number, kind_of, end_of = np.empty((4, len(starts) + 1), np.int64)
    total, reach = np.zeros(3, np.int64), np.full(3, np.iinfo(np.int64).min // 2)
    columns = (*contiguous(starts, durations, kinds), len(starts), *as_int64(hides))
    found = _hidden(*columns, total, reach, number, kind_of, end_of, out)
    return out[:found]


@native("i64(i64*, i64*, i64, i64*, i64*, i64, i64, i64*, i64*, i64*, i64*)")
def _gaps(starts, durations, count, opens, closes, windows, room, begin, end, window, after):  # type: ignore[no-untyped-def]
    """The number of gaps; those beyond `room` are not written."""
    found = 0
    first = 0
    far = np.int64(2**62)
    reach = -far
    for i in range(count + 1):
        until = far if i == count else starts[i]
        if i < count and durations[i] <= 0:
            continue
        if until > reach:
            while first < windows and closes[first] <= reach:
                first += 1
            at = first
            while at < windows and opens[at] < until:
                low = max(reach, opens[at])
                high = min(until, closes[at])
                if high > low:
                    if found < room:
                        begin[found] = low
                        end[found] = high
                        window[found] = at
                        after[found] = i if i < count else -1
                    found += 1
                at += 1
        if i < count:
            reach = max(reach, starts[i] + durations[i])
    return found


def gaps(starts: Array, durations: Array, opens: Array, closes: Array) -> tuple[Array, ...]:
    """(start, end, window, next segment or -1) of each gap; windows must be sorted by start."""
    room = len(starts) + 2 * len(opens) + 1
    while True:
        columns = np.empty((4, room), np.int64)
        spans = (*as_int64(starts, durations), len(starts), *as_int64(opens, closes), len(opens))
        found = int(_gaps(*spans, room, *columns))
        if found <= room:
            return tuple(column[:found] for column in columns)
        room = found


def contiguous(*columns: Array) -> tuple[Array, ...]:
    return tuple(np.ascontiguousarray(column) for column in columns)


def as_int64(*columns: Array) -> tuple[Array, ...]:
    return tuple(np.ascontiguousarray(column, np.int64) for column in columns)


def _counted(values: Array) -> tuple[Array, int]:
    return np.ascontiguousarray(values, np.int64), len(values)
