"""The events of a table as tracks, on which starts and ends are in order.

A lane whose events nest or overlap becomes several tracks; each event goes on the first free one:

    lane      ██ A ████████              depth 0   ██ A ████████
                ██ B ██                  depth 1     ██ B ██ ███ C █████
                       ███ C █████

On a stream the next kernel may start a few microseconds before the last one has ended; such a
handover does not count as overlap. Where a recording holds the events of a stream together and in
order, the table's own columns are the tracks, and nothing is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.events import Array, Table
from slipstream.profile.profile import Lane

MAX_DEPTH = 48
"""most tracks of a lane; deeper events share the last"""
HANDOVER_PS = 20_000_000
"""longest overlap of consecutive kernels of a stream that counts as a handover"""


@dataclass(frozen=True)
class Tracks:
    """Columns of a table in the order of its tracks; on each, starts and ends are ascending."""

    start_ps: Array
    duration_ps: Array
    kind: Array
    order: Array | None
    """row of the table at each place; None if rows and places are the same"""
    bounds: Array
    """places at which tracks start, and the end of the last"""
    lane: Array
    """of each track"""
    depth: Array

    def __len__(self) -> int:
        return len(self.lane)

    def rows(self, places: Array) -> Array:
        """The table's rows at some places."""
        return places if self.order is None else self.order[places]

    def track(self, lane: int, depth: int) -> int | None:
        """The track of a lane at a depth."""
        found = np.flatnonzero((self.lane == lane) & (self.depth == depth))
        return int(found[0]) if len(found) else None


@inner
def _follows(start, duration, end, overlap):  # type: ignore[no-untyped-def]
    """Whether an event can share a track with one that ends at `end`."""
    return start >= end - overlap and start + duration >= end


@native("i64(i32*, i32*, i64*, i64*, i64*, i64, i64*, i64*, i64)")
def _runs(of, lane_of, overlaps, starts, durations, rows, lanes, begins, most):  # type: ignore[no-untyped-def]
    """Find the runs of rows of one lane; return how many.

    Returns -1 if a lane's rows are not one track, and -2 if there are more runs than fit.
    """
    found = 0
    for row in range(rows):
        lane = lane_of[of[row]]
        if row == 0 or lane != lanes[found - 1]:
            if found == most:
                return -2
            lanes[found] = lane
            begins[found] = row
            found += 1
            continue
        end = starts[row - 1] + durations[row - 1]
        # Of events that start together, the longest comes first.
        together = starts[row] == starts[row - 1] and durations[row] > durations[row - 1]
        if starts[row] < starts[row - 1] or together:
            return -1
        if not _follows(starts[row], durations[row], end, overlaps[lane]):
            return -1
    return found


@native("i64(i64*, i64*, i64, i64, i64, i32*, i64*)")
def _levels(starts, durations, rows, overlap, most, levels, free):  # type: ignore[no-untyped-def]
    """Find the first free level of each event, in order; return the number of levels."""
    used = 0
    for row in range(rows):
        level = 0
        while level < used and not _follows(starts[row], durations[row], free[level], overlap):
            level += 1
        if level == used and used < most:
            used += 1
            free[level] = starts[row]
        level = min(level, most - 1)
        levels[row] = level
        free[level] = max(free[level], starts[row] + durations[row])
    return used


def tracks_of(table: Table, lanes: Sequence[Lane], kind: Array) -> Tracks:
    """The tracks of a table; `kind` is a number for each of its rows."""
    overlaps = np.array([HANDOVER_PS * (lane.role == "stream") for lane in lanes], np.int64)
    found = _in_order(table, overlaps)
    if found is not None:
        used, begins = found
        bounds = np.append(begins, len(table))
        flat = np.zeros(len(used), np.int64)
        return Tracks(table["start_ps"], table["duration_ps"], kind, None, bounds, used, flat)
    return _sorted(table, overlaps, kind)


def _in_order(table: Table, overlaps: Array) -> tuple[Array, Array] | None:
    """(lane, first row) of each run of rows, if each lane is one run and one track."""
    if table.tags is not None and table.is_tagged("lane"):
        of, lane_of = table.tags.of, np.ascontiguousarray(table.tagged("lane"), np.int32)
    else:
        of, lane_of = table["lane"], np.arange(len(overlaps), dtype=np.int32)
    most = len(overlaps) + 1
    lanes, begins = np.empty(most, np.int64), np.empty(most, np.int64)
    columns = (np.ascontiguousarray(table[c]) for c in ("start_ps", "duration_ps"))
    whose = (np.ascontiguousarray(of), lane_of, overlaps)
    found = _runs(*whose, *columns, len(table), lanes, begins, most)
    if found < 0 or len(set(lanes[:found].tolist())) < found:
        return None
    return lanes[:found], begins[:found]


def _sorted(table: Table, overlaps: Array, kind: Array) -> Tracks:
    """Rows sorted by lane, depth and start."""
    starts, durations, lane = (table[c] for c in ("start_ps", "duration_ps", "lane"))
    parts, bounds = [], [0]
    lanes: list[int] = []
    depths: list[int] = []
    by_lane = np.argsort(lane, kind="stable")
    edges = np.flatnonzero(np.diff(lane[by_lane])) + 1
    for rows in np.split(by_lane, edges) if len(table) else []:
        own = int(lane[rows[0]])
        levels, rows = _laid_out(rows, starts, durations, int(overlaps[own]))
        sizes = np.bincount(levels)
        parts.append(rows[np.argsort(levels, kind="stable")])
        bounds += (bounds[-1] + np.cumsum(sizes)).tolist()
        lanes += [own] * len(sizes)
        depths += range(len(sizes))
    order = np.concatenate(parts) if parts else np.empty(0, np.int64)
    columns = (starts[order], durations[order], np.ascontiguousarray(kind[order]), order)
    return Tracks(*columns, *(np.array(c, np.int64) for c in (bounds, lanes, depths)))


def _laid_out(rows: Array, starts: Array, durations: Array, overlap: int) -> tuple[Array, Array]:
    """(level of each, rows) of one lane, in order of their starts, the longest of equals first."""
    own_starts = starts[rows]
    if (np.diff(own_starts) <= 0).any():
        rows = rows[np.lexsort((-durations[rows], own_starts))]
        own_starts = starts[rows]
    levels = np.empty(len(rows), np.int32)
    free = np.zeros(MAX_DEPTH, np.int64)
    _levels(own_starts, durations[rows], len(rows), overlap, MAX_DEPTH, levels, free)
    return levels, rows
