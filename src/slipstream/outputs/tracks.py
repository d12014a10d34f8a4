"""Lays the events of a lane out on tracks whose slices nest.

A viewer closes the innermost open slice first, so on one track slices must be one inside the
other or apart.  What overlaps otherwise goes to an extra track:

    lane      ██ A ████████
                   ███ B █████          B ends after A: not inside it
    track 0   ██ A ████████
    track 1        ███ B █████
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.profile.events import Array


@dataclass(frozen=True)
class Track:
    """Slices of one track in the order in which they open and close."""

    rows: Array
    """row of each opening and closing"""
    opens: Array
    """whether it opens its row's slice; closes it otherwise"""


def lay_out(rows: Array, starts: Array, ends: Array, nested: bool) -> list[Track]:
    """Tracks for the events `rows` of one lane; `nested` says that a slice may hold others."""
    own_starts, own_ends = starts[rows], ends[rows]
    longest_first = -own_ends if nested else own_ends
    order = np.lexsort((longest_first, own_starts))
    rows, own_starts, own_ends = rows[order], own_starts[order], own_ends[order]
    if _one_after_another(own_starts, own_ends):
        return [_alternating(rows)]
    placed = _place(own_starts.tolist(), own_ends.tolist(), nested)
    return [_as_track(rows, moves) for moves in placed]


def _one_after_another(starts: Array, ends: Array) -> bool:
    return bool(np.all(starts[1:] >= np.maximum.accumulate(ends)[:-1]))


def _alternating(rows: Array) -> Track:
    opens = np.zeros(2 * len(rows), bool)
    opens[::2] = True
    return Track(np.repeat(rows, 2), opens)


def _as_track(rows: Array, moves: list[int]) -> Track:
    moved = np.array(moves, np.int64)
    opens = moved >= 0
    return Track(rows[np.where(opens, moved, ~moved)], opens)


def _place(starts: list[int], ends: list[int], nested: bool) -> list[list[int]]:
    """For each track its moves: `i` opens event i, `~i` closes it.  First track that fits wins."""
    tracks: list[list[int]] = []
    open_slices: list[list[int]] = []
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        for moves, stack in zip(tracks, open_slices, strict=True):
            while stack and ends[stack[-1]] <= start:
                moves.append(~stack.pop())
            if not stack or (nested and end <= ends[stack[-1]]):
                break
        else:
            moves, stack = [], []
            tracks.append(moves)
            open_slices.append(stack)
        moves.append(i)
        stack.append(i)
    for moves, stack in zip(tracks, open_slices, strict=True):
        moves.extend(~i for i in reversed(stack))
    return tracks
