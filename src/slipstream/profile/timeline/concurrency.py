"""What runs beside what: kernels one at a time, and those that ran longest beside others.

compute       ██ a ██████ a ██         of two at once, the time is of the last to begin
                 ██ b ██
all-gather        ██████████           beside b, then a
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.native import native
from slipstream.profile.events import Array
from slipstream.profile.timeline.scans import last_before, numbers, whole

CELLS = 1 << 21
"""most sums that are kept at a time: what a processor's cache holds"""
TOP = 5
"""how many of the kernels that hid a group are told"""


@native("i64(i64*, i64*, u8*, i64, i64, i64*, i32*, i64*, i64*)")
def _flat(starts, durations, kinds, count, mask, stack, owner, opens, closes):  # type: ignore[no-untyped-def]
    used = 0
    depth = 0
    at = np.int64(0)
    for i in range(count + 1):
        if i < count and (not (mask >> kinds[i]) & 1 or durations[i] <= 0):
            continue
        # What runs goes on until the next begins; at the end of all, to its own end.
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
        # Of what begins together the longest is the outermost.
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
    """(start, end, which) of the time of each segment in which it was the last to begin."""
    size = 2 * len(starts)
    stack, owner = np.empty(len(starts) + 1, np.int64), np.empty(size, np.int32)
    opens, closes = np.empty((2, size), np.int64)
    columns = (*whole(starts, durations, kinds), len(starts), mask)
    used = _flat(*columns, stack, owner, opens, closes)
    return opens[:used], closes[:used], owner[:used]


@native("i64(i64*, i64*, i32*, i32*, i64, i64*, i64*, i32*, i64*, i64, i64, i64, i64*)")
def _hiders(  # type: ignore[no-untyped-def]
    starts, ends, devices, groups, rows, opens, closes, owners, bounds, low, high, kernels, table,
):  # fmt: skip
    """Time of the groups from `low` to `high` beside each kernel."""
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
    """The largest of each row, the first of equals first."""
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
class Concurrent:
    """Segments beside which others run, and what group each is in."""

    start_ps: Array
    end_ps: Array
    device: Array
    group: Array


@dataclass(frozen=True)
class Serialized:
    """Segments that don't overlap, device by device, in order."""

    start_ps: Array
    end_ps: Array
    kernel: Array
    """a number that those which belong together share"""
    bounds: Array
    """where each device's begin, and where the last one's end"""


def longest_concurrent(asides: Concurrent, flat: Serialized) -> tuple[Array, Array]:
    """For each group of asides, the kernels that ran longest beside it, and how long; -1: none."""
    size = int(asides.group.max()) + 1 if len(asides.group) else 0
    best, times = np.full((size, TOP), -1, np.int64), np.zeros((size, TOP), np.int64)
    if not size or not len(flat.kernel):
        return best, times
    kernels = int(flat.kernel.max()) + 1
    columns = (*numbers(asides.start_ps, asides.end_ps), *_labels(asides.device, asides.group))
    beside = (*numbers(flat.start_ps, flat.end_ps), *_labels(flat.kernel), *numbers(flat.bounds))
    height = max(1, CELLS // kernels)
    for low in range(0, size, height):
        high = min(low + height, size)
        table = np.zeros((high - low, kernels), np.int64)
        _hiders(*columns, len(asides.group), *beside, low, high, kernels, table)
        _most(table, high - low, kernels, TOP, best[low:high], times[low:high])
    return best, times


def _labels(*columns: Array) -> tuple[Array, ...]:
    return tuple(np.ascontiguousarray(column, np.int32) for column in columns)
