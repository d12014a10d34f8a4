"""Lays the events of a lane out on tracks whose slices nest.

A viewer closes the innermost open slice first, so the slices of one track must nest or be disjoint.
Other overlapping slices go to an extra track:

    lane      ██ A ████████
                   ███ B █████          B ends after A: not inside it
    track 0   ██ A ████████
    track 1        ███ B █████
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.native import native
from slipstream.profile.events import Array


@dataclass(frozen=True)
class Track:
    """The slices of one track, in the order in which they open and close."""

    rows: Array
    """row of each opening and closing"""
    opens: Array
    """whether it opens its row's slice or closes it"""


def lay_out(rows: Array, starts: Array, ends: Array, nested: bool) -> list[Track]:
    """Tracks for the events `rows` of one lane; if `nested`, a slice may contain others."""
    own_starts, own_ends = starts[rows], ends[rows]
    longest_first = -own_ends if nested else own_ends
    order = np.lexsort((longest_first, own_starts))
    rows, own_starts, own_ends = rows[order], own_starts[order], own_ends[order]
    if _one_after_another(own_starts, own_ends):
        return [_alternating(rows)]
    return [_as_track(rows, moves) for moves in place(own_starts, own_ends, nested)]


def _one_after_another(starts: Array, ends: Array) -> bool:
    return bool(np.all(starts[1:] >= np.maximum.accumulate(ends)[:-1]))


def _alternating(rows: Array) -> Track:
    opens = np.zeros(2 * len(rows), bool)
    opens[::2] = True
    return Track(np.repeat(rows, 2), opens)


def _as_track(rows: Array, moves: Array) -> Track:
    opens = moves >= 0
    return Track(rows[np.where(opens, moves, ~moves)], opens)


@native("i64(i64*, i64*, i64, i64, i64*, i64*, i32*, i64*)")
def _place(starts, ends, rows, nested, top, below, track, moves):  # type: ignore[no-untyped-def]
    """Put each event on the first track that fits; open slices are lists from the innermost out."""
    used = 0
    tracks = 0
    for i in range(rows):
        at = 0
        while at < tracks:
            while top[at] >= 0 and ends[top[at]] <= starts[i]:
                track[used] = at
                moves[used] = -1 - top[at]
                used += 1
                top[at] = below[top[at]]
            if top[at] < 0 or (nested and ends[i] <= ends[top[at]]):
                break
            at += 1
        if at == tracks:
            top[at] = -1
            tracks += 1
        track[used] = at
        moves[used] = i
        used += 1
        below[i] = top[at]
        top[at] = i
    for at in range(tracks):
        while top[at] >= 0:
            track[used] = at
            moves[used] = -1 - top[at]
            used += 1
            top[at] = below[top[at]]
    return tracks


def place(starts: Array, ends: Array, nested: bool) -> list[Array]:
    """For each track its moves: `i` opens event i, `~i` closes it; events are in order of start."""
    size = len(starts)
    top, below = np.empty((2, size + 1), np.int64)
    track, moves = np.empty(2 * size, np.int32), np.empty(2 * size, np.int64)
    times = (np.ascontiguousarray(column, np.int64) for column in (starts, ends))
    count = int(_place(*times, size, int(nested), top, below, track, moves))
    order = np.argsort(track, kind="stable")
    bounds = np.searchsorted(track[order], np.arange(1, count))
    return np.split(moves[order], bounds)
