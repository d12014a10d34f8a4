"""Aligning kernels with launches: which kernel of a sequence belongs to which instruction.

Both sequences are in launch order, so the best assignment is a path that never goes back:

    launches →   copy   dot   fusion.1   dot   fusion.1
    memcpy         ●
    memset                ●                              a library call's first kernel …
    nvjet                 ●                              … and its second: the path stays
    fusion_1                     ●
    nvjet                                 ●
    fusion_1                                     ●

Each cell has a score (does this kernel look like that launch?), staying and skipping cost
something, and the best path is found kernel by kernel. Paths far behind the best are dropped, so
time and memory grow with the number of kernels, not with its square.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.attribution.kernels import (
    AFTER,
    BEFORE,
    COLLECTIVE,
    COPY,
    MAIN,
    MEMSET,
    NAMED,
    NO_FAMILY,
)
from slipstream.profile.attribution.launch_sequence import LaunchSequence
from slipstream.profile.events import Array

ANCHOR = 5
"""class of an event that carries a true label"""

_IS_LIBRARY, _IS_COPY, _IS_COLLECTIVE, _IS_MEMSET = 1, 2, 4, 8
_LOST = 60.0
"""paths this far behind the best are dropped"""
_NEVER = -1e18
_MISFIT = -4.0
"""an event that fits its launch no better than this stays unattributed"""
_FREE_START = 30.0
"""a sequence may begin anywhere in the schedule for at most this much"""


@dataclass(frozen=True)
class Sequence:
    """Events in launch order, as numbers: see `kernels` for the columns' meaning."""

    kind: Array
    group: Array
    """of a NAMED event its group of fusions, of an ANCHOR its instruction; both as numbers"""
    part: Array
    family: Array
    direction: Array
    bytes: Array


@inner
def _emission(  # type: ignore[no-untyped-def]
    kind, group, family, direction, size, flags, item_group, item_label, item_family,
    item_direction, item_bytes,
):  # fmt: skip
    """How well an event fits a launch; below zero it does not."""
    if kind == ANCHOR:
        return 20.0 if group == item_label else -40.0
    if kind == NAMED:
        return 6.0 if group == item_group else -25.0
    if kind == COPY:
        if flags & _IS_COPY:
            score = 3.0
            if direction != item_direction:
                score -= 8.0
            if size > 0:
                score += 2.0 if size == item_bytes else -2.0
            return score
        return -1.0 if flags & (_IS_LIBRARY | _IS_COLLECTIVE) else -12.0
    if kind == MEMSET:
        # Just under a library's share, and above the cost of skipping: one each, where both may.
        if flags & _IS_MEMSET:
            return 1.7
        return 1.8 if flags & _IS_LIBRARY else -3.0
    if kind == COLLECTIVE:
        if flags & _IS_COLLECTIVE:
            return 5.0 if family == item_family else -3.0
        return -25.0
    if flags & _IS_LIBRARY:
        score = 3.0
        if family != NO_FAMILY and item_family != NO_FAMILY:
            score += 2.0 if family == item_family else -1.0
        return score
    return -12.0


@inner
def _stay(kind, part, before_kind, before_part):  # type: ignore[no-untyped-def]
    """What it costs that this event and the one before belong to one launch."""
    if kind == ANCHOR:
        return 0.0
    if kind == COLLECTIVE:
        return 2.0
    if kind == NAMED:
        return 1.0 if before_kind == MEMSET else 7.0
    if kind == COPY:
        return 5.0
    if before_kind == NAMED or before_kind == COPY:
        return 6.0
    if part == BEFORE and (before_part == MAIN or before_part == AFTER):
        return 6.0
    if part == MAIN and before_part == AFTER:
        return 6.0
    if part == MAIN and before_part == MAIN:
        return 2.5
    return 0.0


@native(
    "i64(i64*, i64*, i64*, i64*, i64*, i64*, i64, i64*, i64*, i64*, i64*, i64*, i64*, i64,"
    " f64*, i64*, f64*, f64*, i64*, i64*, i32*, i64, i64*)"
)
def _advance(  # type: ignore[no-untyped-def]
    kind, group, part, family, direction, size, count,
    flags, item_group, item_label, item_family, item_direction, item_bytes, length,
    skipped, back, score, fresh, lows, offsets, pointers, room, state,
):  # fmt: skip
    """Go on with the paths, event by event, from `state` (event, low, high).

    `skipped[i]` is the cost of skipping every launch before i; `back[i]` the last launch of the
    loop that starts at i and runs an unknown number of times, or -1. `pointers` keeps, for each
    event, where the best path to each launch came from. Returns the next event: less than `count`
    when `pointers` has no more room.
    """
    e, low, high = state[0], state[1], state[2]
    while e < count and offsets[e] + length - low <= room:
        stay = 0.0
        if e > 0:
            stay = _stay(kind[e], part[e], kind[e - 1], part[e - 1])
        best = _NEVER
        running, running_at = _NEVER, np.int64(-1)
        top = low
        for q in range(low, length):
            came, at = _NEVER, np.int64(-1)
            if e == 0:
                came = -min(skipped[q], _FREE_START)
            else:
                if running > _NEVER:
                    came, at = running - skipped[q], running_at
                if q < high and score[q] - stay > came:
                    came, at = score[q] - stay, np.int64(q)
                if back[q] >= 0:
                    for p in range(max(q, low), min(back[q] + 1, high)):
                        again = score[p] - (skipped[back[q] + 1] - skipped[p + 1]) - 1.0
                        if again > came:
                            came, at = again, np.int64(p)
                if q < high and score[q] > _NEVER and score[q] + skipped[q + 1] > running:
                    running, running_at = score[q] + skipped[q + 1], np.int64(q)
            fresh[q] = _NEVER
            if came > _NEVER:
                fresh[q] = came + _emission(
                    kind[e], group[e], family[e], direction[e], size[e], flags[q],
                    item_group[q], item_label[q], item_family[q], item_direction[q], item_bytes[q],
                )  # fmt: skip
            pointers[offsets[e] + q - low] = at
            best = max(best, fresh[q])
            top = q + 1
            # Beyond the old paths only skipping helps, and that gets ever dearer.
            if e > 0 and q >= high and running - skipped[q] + 20.0 < best - _LOST:
                break
        lows[e] = low
        offsets[e + 1] = offsets[e] + top - low
        for q in range(low, high):
            score[q] = _NEVER
        first, last = top, low
        for q in range(low, top):
            if fresh[q] >= best - _LOST:
                score[q] = fresh[q]
                first = min(first, q)
                last = q
        low, high = first, last + 1
        e += 1
    state[0], state[1], state[2] = e, low, high
    return e


@native(
    "i64(i64*, i64*, i64*, i64*, i64*, i64*, i64, i64*, i64*, i64*, i64*, i64*, i64*, i64,"
    " f64*, i64*, i64*, i32*, i64*, i64*, b1*)"
)
def _trace(  # type: ignore[no-untyped-def]
    kind, group, part, family, direction, size, count,
    flags, item_group, item_label, item_family, item_direction, item_bytes, length,
    score, lows, offsets, pointers, state, path, fits,
):  # fmt: skip
    """Walk the best path back: each event's launch, and whether the event looks like it."""
    at = state[1]
    for q in range(state[1], state[2]):
        if score[q] > score[at]:
            at = np.int64(q)
    for back in range(count):
        e = count - 1 - back
        path[e] = at
        fits[e] = _emission(
            kind[e], group[e], family[e], direction[e], size[e], flags[at],
            item_group[at], item_label[at], item_family[at], item_direction[at], item_bytes[at],
        ) > _MISFIT  # fmt: skip
        at = np.int64(pointers[offsets[e] + at - lows[e]])
    return 0


class Aligner:
    """A program's schedule as arrays, ready to align any number of sequences with."""

    def __init__(
        self, schedule: LaunchSequence, labels: dict[str, int], groups: dict[str, int]
    ) -> None:
        launches = schedule.launches
        self.instructions = [launch.instruction for launch in launches]
        flags = [
            _IS_LIBRARY * launch.is_library
            | _IS_COPY * launch.is_copy
            | _IS_COLLECTIVE * launch.is_collective
            | _IS_MEMSET * launch.is_memset
            for launch in launches
        ]
        self._items = (
            np.array(flags, np.int64),
            np.array([groups.get(launch.group, -1) for launch in launches], np.int64),
            np.array([labels.get(launch.instruction, -1) for launch in launches], np.int64),
            np.array([launch.family for launch in launches], np.int64),
            np.array([launch.direction for launch in launches], np.int64),
            np.array([launch.bytes for launch in launches], np.int64),
        )
        costs = np.array([launch.skip_cost for launch in launches], np.float64)
        self._skipped = np.concatenate((np.zeros(1), np.cumsum(costs)))
        self._back = np.full(len(launches), -1, np.int64)
        for first, last in schedule.loops:
            self._back[first] = last

    def align(self, events: Sequence) -> tuple[Array, Array]:
        """(index into `instructions`, whether the event looks like that launch) of each event."""
        columns = (
            events.kind, events.group, events.part, events.family, events.direction, events.bytes
        )  # fmt: skip
        numbers = [np.ascontiguousarray(column, np.int64) for column in columns]
        count, length = len(events.kind), len(self.instructions)
        score, fresh = np.full(length, _NEVER), np.full(length, _NEVER)
        lows, offsets = np.empty(count, np.int64), np.zeros(count + 1, np.int64)
        state = np.array([0, 0, length])
        pointers = np.empty(64 * count + 4 * length, np.int32)
        both = (*numbers, count, *self._items, length)
        paths = (self._skipped, self._back, score, fresh, lows, offsets)
        while _advance(*both, *paths, pointers, len(pointers), state) < count:
            pointers = np.concatenate((pointers, np.empty_like(pointers)))
        path, fits = np.empty(count, np.int64), np.empty(count, np.bool_)
        _trace(*both, score, lows, offsets, pointers, state, path, fits)
        return path, fits
