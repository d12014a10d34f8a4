"""Align kernels with launches: find the instruction that each kernel of a sequence belongs to.

Both sequences are in launch order, so the best assignment is a path that never goes back:

    launches →   copy   dot   fusion.1   dot   fusion.1
    memcpy         ●
    memset                ●                              a library call's first kernel …
    nvjet                 ●                              … and its second: the path stays
    fusion_1                     ●
    nvjet                                 ●
    fusion_1                                     ●

Each cell has a score (does this kernel look like that launch?), staying and skipping have a cost,
and the best path is found kernel by kernel (Viterbi). Paths far behind the best are dropped, so
time and memory grow linearly with the number of kernels, not quadratically.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.attribution.kernels import (
    AFTER,
    ANY,
    BEFORE,
    COLLECTIVE,
    COPY,
    MAIN,
    MEMSET,
    NAMED,
    NO_FAMILY,
    SAME_SIDE,
)
from slipstream.profile.attribution.launch_sequence import Launch, LaunchSequence
from slipstream.profile.events import Array

ANCHOR = 5
"""kind of an event that carries a true label"""
CHILD = 6
"""kind of a child graph, which a library call, a copy or a collective was captured into"""

_IS_LIBRARY, _IS_COPY, _IS_COLLECTIVE, _IS_MEMSET = 1, 2, 4, 8
_LOST = 60.0
"""paths this far behind the best are dropped"""
_NEVER = -1e18
MISFIT = -4.0
"""an event that fits its launch no better than this stays unattributed"""
_FREE_START = 30.0
"""the most it costs to begin a sequence in the middle of the schedule"""
_NEXT_ITERATION = 1.0
"""cost of another iteration of a loop whose trip count is unknown"""
_EXPECTED = 8.0
"""cost of skipping a launch that is known to have run"""
_BEST_FIT = 20.0
"""the highest score that `_fit` gives"""
_MOST_BYTES = 1 << 62

# Events and launches are tables of int64 with one row each; these are their columns.
_KIND, _GROUP, _PART, _FAMILY, _DIRECTION, _BYTES, _EVENT_SIZE = range(7)
_FLAGS, _LAUNCH_GROUP, _LABEL, _LAUNCH_FAMILY, _LAUNCH_DIRECTION, _LAUNCH_BYTES, _LAUNCH_SIZE = (
    range(7)
)


@dataclass(frozen=True)
class EventSequence:
    """Events in launch order, as numbers; `kernels` explains the columns."""

    kind: Array
    group: Array
    """the group of fusions of a NAMED event, the instruction of an ANCHOR; both as numbers"""
    part: Array
    family: Array
    direction: Array
    bytes: Array

    def __len__(self) -> int:
        return len(self.kind)

    def take(self, rows: Array) -> EventSequence:
        """The events of these rows; row -1 stands for a child graph."""
        nothing = (CHILD, -2, ANY, NO_FAMILY, SAME_SIDE, 0)
        columns = (self.kind, self.group, self.part, self.family, self.direction, self.bytes)
        taken = (np.where(rows < 0, n, c[rows]) for n, c in zip(nothing, columns, strict=True))
        return EventSequence(*taken)

    def table(self) -> Array:
        columns = (self.kind, self.group, self.part, self.family, self.direction, self.bytes)
        return np.ascontiguousarray(np.stack(columns, axis=1), np.int64)


@inner
def _fit(events, e, launches, q):  # type: ignore[no-untyped-def]
    """How well event `e` fits launch `q`; negative if it doesn't."""
    event = e * _EVENT_SIZE
    launch = q * _LAUNCH_SIZE
    kind = events[event + _KIND]
    if kind == ANCHOR:
        return _BEST_FIT if events[event + _GROUP] == launches[launch + _LABEL] else -40.0
    if kind == NAMED:
        return 6.0 if events[event + _GROUP] == launches[launch + _LAUNCH_GROUP] else -25.0
    flags = launches[launch + _FLAGS]
    if kind == CHILD:
        return 3.0 if flags & (_IS_LIBRARY | _IS_COPY | _IS_COLLECTIVE) else -12.0
    family = events[event + _FAMILY]
    if kind == COPY:
        if flags & _IS_COPY:
            score = 3.0
            if events[event + _DIRECTION] != launches[launch + _LAUNCH_DIRECTION]:
                score -= 8.0
            size = events[event + _BYTES]
            if size > 0:
                score += 2.0 if size == launches[launch + _LAUNCH_BYTES] else -2.0
            return score
        return -1.0 if flags & (_IS_LIBRARY | _IS_COLLECTIVE) else -12.0
    if kind == MEMSET:
        # Just below the score of a library call, and above the cost of skipping: where both a
        # library call and a memset are launched, each gets one.
        if flags & _IS_MEMSET:
            return 1.7
        return 1.8 if flags & _IS_LIBRARY else -3.0
    if kind == COLLECTIVE:
        if flags & _IS_COLLECTIVE:
            return 5.0 if family == launches[launch + _LAUNCH_FAMILY] else -3.0
        return -25.0
    if flags & _IS_LIBRARY:
        score = 3.0
        launch_family = launches[launch + _LAUNCH_FAMILY]
        if family != NO_FAMILY and launch_family != NO_FAMILY:
            score += 2.0 if family == launch_family else -1.0
        return score
    return -12.0


@inner
def _stay_cost(events, e):  # type: ignore[no-untyped-def]
    """The cost of attributing event `e` to the same launch as the event before it."""
    kind = events[e * _EVENT_SIZE + _KIND]
    part = events[e * _EVENT_SIZE + _PART]
    before_kind = events[(e - 1) * _EVENT_SIZE + _KIND]
    before_part = events[(e - 1) * _EVENT_SIZE + _PART]
    if kind == ANCHOR:
        return 0.0
    if kind == CHILD or before_kind == CHILD:
        return 7.0
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


@inner
def _through_loop(q, low, high, last, skipped, score):  # type: ignore[no-untyped-def]
    """Best (score, launch) from which a loop that starts at `q` begins another iteration."""
    came, at = _NEVER, np.int64(-1)
    for p in range(max(q, low), min(last + 1, high)):
        again = score[p] - (skipped[last + 1] - skipped[p + 1]) - _NEXT_ITERATION
        if again > came:
            came, at = again, np.int64(p)
    return came, at


@inner
def _keep_near_best(low, high, top, best, fresh, score):  # type: ignore[no-untyped-def]
    """Move the paths near the best from `fresh` to `score`; returns their range of launches."""
    for q in range(low, high):
        score[q] = _NEVER
    first, last = top, low
    for q in range(low, top):
        if fresh[q] >= best - _LOST:
            score[q] = fresh[q]
            first = min(first, q)
            last = q
    return first, last + 1


@native("i64(i64*, i64, i64*, i64, f64*, i64*, f64*, f64*, i64*, i64*, i32*, i64, i64*)")
def _advance(  # type: ignore[no-untyped-def]
    events, count, launches, length,
    skipped, loop_end, score, fresh, lows, offsets, pointers, room, state,
):  # fmt: skip
    """Extend the paths, event by event, from `state` (next event, and its range of launches).

    `skipped[q]` is the cost of skipping all launches before q; `loop_end[q]` is the last launch of
    the loop of unknown trip count that starts at q, or -1. `score[q]` is the score of the best path
    that ends at launch q, `fresh` the same for the next event. `pointers` keeps, for each event,
    where the best path to each launch came from. Returns the next event, which is less than `count`
    if `pointers` is full.
    """
    e, low, high = state[0], state[1], state[2]
    while e < count and offsets[e] + length - low <= room:
        stay = _stay_cost(events, e) if e > 0 else 0.0
        best = _NEVER
        # The best path that skips to q: its score before the cost of skipping, and its launch.
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
                if loop_end[q] >= 0:
                    again, again_at = _through_loop(q, low, high, loop_end[q], skipped, score)
                    if again > came:
                        came, at = again, again_at
                if q < high and score[q] > _NEVER and score[q] + skipped[q + 1] > running:
                    running, running_at = score[q] + skipped[q + 1], np.int64(q)
            fresh[q] = came + _fit(events, e, launches, q) if came > _NEVER else _NEVER
            pointers[offsets[e] + q - low] = at
            best = max(best, fresh[q])
            top = q + 1
            # Beyond the old paths a path can only skip, and the cost of that keeps growing.
            if e > 0 and q >= high and running - skipped[q] + _BEST_FIT < best - _LOST:
                break
        lows[e] = low
        offsets[e + 1] = offsets[e] + top - low
        low, high = _keep_near_best(low, high, top, best, fresh, score)
        e += 1
    state[0], state[1], state[2] = e, low, high
    return e


@native("i64(i64*, i64, i64*, f64*, i64*, i64*, i32*, i64*, i64*, f64*)")
def _trace(  # type: ignore[no-untyped-def]
    events, count, launches, score, lows, offsets, pointers, state, path, fit
):
    """Walk the best path back: the launch of each event, and how well the event fits it."""
    at = state[1]
    for q in range(state[1], state[2]):
        if score[q] > score[at]:
            at = np.int64(q)
    for back in range(count):
        e = count - 1 - back
        path[e] = at
        fit[e] = _fit(events, e, launches, at)
        at = np.int64(pointers[offsets[e] + at - lows[e]])
    return 0


class Aligner:
    """A program's launch sequence as arrays, to align any number of event sequences with."""

    def __init__(
        self, launches: Array, skip_costs: Array, loops: tuple[tuple[int, int], ...] = ()
    ) -> None:
        self._launches = np.ascontiguousarray(launches)
        self._count = len(launches)
        self._skipped = np.concatenate((np.zeros(1), np.cumsum(skip_costs)))
        self._loop_end = np.full(self._count, -1, np.int64)
        for first, last in loops:
            self._loop_end[first] = last

    @classmethod
    def of(
        cls, sequence: LaunchSequence, labels: dict[str, int], groups: dict[str, int]
    ) -> Aligner:
        rows = [_launch_row(launch, labels, groups) for launch in sequence.launches]
        costs = np.array([launch.skip_cost for launch in sequence.launches], np.float64)
        return cls(np.array(rows, np.int64).reshape(-1, _LAUNCH_SIZE), costs, sequence.loops)

    def among(self, places: Array) -> Aligner:
        """An aligner of some launches alone, all of which are expected to leave an event."""
        return Aligner(self._launches[places], np.full(len(places), _EXPECTED))

    def align(self, sequence: EventSequence) -> tuple[Array, Array]:
        """(index of the launch, how well the event fits it) of each event.

        An event fits no better than `MISFIT` if it belongs to no launch.
        """
        events, count, length = sequence.table(), len(sequence), self._count
        if not length:
            return np.full(count, -1, np.int64), np.full(count, MISFIT)
        score, fresh = np.full(length, _NEVER), np.full(length, _NEVER)
        lows, offsets = np.empty(count, np.int64), np.zeros(count + 1, np.int64)
        state = np.array([0, 0, length])
        pointers = np.empty(64 * count + 4 * length, np.int32)
        both = (events, count, self._launches, length)
        paths = (self._skipped, self._loop_end, score, fresh, lows, offsets)
        while _advance(*both, *paths, pointers, len(pointers), state) < count:
            pointers = np.concatenate((pointers, np.empty_like(pointers)))
        path, fit = np.empty(count, np.int64), np.empty(count)
        found = (score, lows, offsets, pointers, state, path, fit)
        _trace(events, count, self._launches, *found)
        return path, fit


def _launch_row(launch: Launch, labels: dict[str, int], groups: dict[str, int]) -> tuple[int, ...]:
    """A launch as a row of the table that `_fit` reads."""
    flags = (
        _IS_LIBRARY * launch.is_library
        | _IS_COPY * launch.is_copy
        | _IS_COLLECTIVE * launch.is_collective
        | _IS_MEMSET * launch.is_memset
    )
    group, label = groups.get(launch.group, -1), labels.get(launch.instruction, -1)
    # No copy has such a size, but a program may state any.
    size = min(launch.bytes, _MOST_BYTES)
    return flags, group, label, launch.family, launch.direction, size
