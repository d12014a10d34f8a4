"""What runs concurrently: which kernels overlap a collective or a copy, and for how long.

compute       ██ a ██████ a ██         where two overlap, the time belongs to the last to begin
                 ██ b ██
all-gather        ██████████           overlaps b, then a
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.native import native
from slipstream.profile.events import Array
from slipstream.profile.timeline.scans import as_int64, contiguous, last_before

CELLS = 1 << 21
"""sums kept at a time: as many as fit in a processor's cache"""
TOP = 5
"""how many of the kernels that hid a group are reported"""


@native("i64(i64*, i64*, u8*, i64, i64, i64*, i32*, i64*, i64*)")
def _serialize(starts, durations, kinds, count, mask, stack, owner, opens, closes):  # type: ignore[no-untyped-def]
    used = 0
    depth = 0
    at = np.int64(0)
    for i in range(count + 1):
        if i < count and (not (mask >> kinds[i]) & 1 or durations[i] <= 0):
            continue
        # The innermost segment runs until the next begins, or until its own end.
        while depth:
            top = stack[depth - 1]
            end = starts[top] + durations[top]
            goes_on = i < count and end > starts[i]
            until = starts[i] if goes_on else end
            if until > at:
                owner[used] = top
                opens[used] = at
                closes[used] = until
                at = until
                used += 1
            if goes_on:
                break
            depth -= 1
        if i == count:
            break
        place = depth
        # Of segments that begin together, the longest is the outermost.
        while place > 0 and starts[stack[place - 1]] == starts[i]:
            if durations[stack[place - 1]] >= durations[i]:
                break
            stack[place] = stack[place - 1]
            place -= 1
        stack[place] = i
        depth += 1
        at = starts[i]
    return used


def serialize(
    starts: Array, durations: Array, kinds: Array, mask: int
) -> tuple[Array, Array, Array]:
    """(start, end, segment) of the times in which a segment is the last one that began."""
    size = 2 * len(starts)
    stack, owner = np.empty(len(starts) + 1, np.int64), np.empty(size, np.int32)
    opens, closes = np.empty((2, size), np.int64)
    columns = (*contiguous(starts, durations, kinds), len(starts), mask)
    used = _serialize(*columns, stack, owner, opens, closes)
    return opens[:used], closes[:used], owner[:used]


@native("i64(i64*, i64*, i32*, i32*, i64, i64*, i64*, i32*, i64*, i64, i64, i64, i64*)")
def _overlaps(  # type: ignore[no-untyped-def]
    starts, ends, devices, groups, rows, opens, closes, owners, bounds, low, high, kernels, table,
):  # fmt: skip
    """Time in which each kernel overlaps each of the groups from `low` to `high`."""
    near = np.int64(0)
    for row in range(rows):
        first = bounds[devices[row]]
        last = bounds[devices[row] + 1]
        if groups[row] < low or groups[row] >= high or first == last:
            continue
        near = min(max(near, first), last - 1)
        near = max(last_before(opens, last, starts[row], near), first)
        at = near
        while at < last and opens[at] < ends[row]:
            both = min(closes[at], ends[row]) - max(opens[at], starts[row])
            if both > 0:
                table[(groups[row] - low) * kernels + owners[at]] += both
            at += 1
    return 0


@native("i64(i64*, i64, i64, i64, i64*, i64*)")
def _most(table, rows, kernels, top, best, times):  # type: ignore[no-untyped-def]
    """The largest values of each row; of equal values, the first."""
    for row in range(rows):
        for kernel in range(kernels):
            time = table[row * kernels + kernel]
            at = top
            while at > 0 and times[row * top + at - 1] < time:
                if at < top:
                    best[row * top + at] = best[row * top + at - 1]
                    times[row * top + at] = times[row * top + at - 1]
                at -= 1
            if at < top:
                best[row * top + at] = kernel
                times[row * top + at] = time
    return 0


@dataclass(frozen=True)
class Grouped:
    """Segments that may be overlapped, each with its group."""

    start_ps: Array
    end_ps: Array
    device: Array
    group: Array


@dataclass(frozen=True)
class Serialized:
    """Segments that don't overlap each other, by device and start."""

    start_ps: Array
    end_ps: Array
    kernel: Array
    """number of the kernel that each segment belongs to"""
    bounds: Array
    """index at which each device's segments begin, and at which the last device's end"""


def longest_overlaps(segments: Grouped, compute: Serialized) -> tuple[Array, Array]:
    """(kernels, times): the kernels that overlap each group longest, and for how long; -1: none."""
    size = int(segments.group.max()) + 1 if len(segments.group) else 0
    best, times = np.full((size, TOP), -1, np.int64), np.zeros((size, TOP), np.int64)
    if not size or not len(compute.kernel):
        return best, times
    kernels = int(compute.kernel.max()) + 1
    times_of = (segments.start_ps, segments.end_ps)
    columns = (*as_int64(*times_of), *_as_int32(segments.device, segments.group))
    times_of = (compute.start_ps, compute.end_ps)
    serial = (*as_int64(*times_of), *_as_int32(compute.kernel), *as_int64(compute.bounds))
    height = max(1, CELLS // kernels)
    for low in range(0, size, height):
        high = min(low + height, size)
        table = np.zeros((high - low, kernels), np.int64)
        _overlaps(*columns, len(segments.group), *serial, low, high, kernels, table)
        _most(table, high - low, kernels, TOP, best[low:high], times[low:high])
    return best, times


def _as_int32(*columns: Array) -> tuple[Array, ...]:
    return tuple(np.ascontiguousarray(column, np.int32) for column in columns)
