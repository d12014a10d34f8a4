"""Events on tracks whose slices nest, against a plain placing of one after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from slipstream.outputs.perfetto.track_layout import lay_out, place

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12)), min_size=1, max_size=30)


def plain_place(starts: list[int], ends: list[int], nested: bool) -> list[list[int]]:
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


@given(spans, st.booleans())
def test_moves_are_those_of_a_plain_placing(rows, nested):
    rows = sorted(rows)
    starts = [start for start, _ in rows]
    ends = [start + length for start, length in rows]
    found = place(np.array(starts), np.array(ends), nested)
    assert [track.tolist() for track in found] == plain_place(starts, ends, nested)


def test_one_after_another_is_one_track():
    (track,) = lay_out(np.array([1, 0]), np.array([5, 0]), np.array([9, 5]), nested=False)
    assert track.rows.tolist() == [1, 1, 0, 0]
    assert track.opens.tolist() == [True, False, True, False]
