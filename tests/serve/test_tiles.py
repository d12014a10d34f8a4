"""Tiles against a plain implementation, with few events and with many."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serve.plain import Slice, Tile, plain_tiles
from slipstream.profile.events import Array
from slipstream.serve.tiles import LARGE_GROUP, Tiles, pyramid, tiles
from slipstream.serve.tracks import Tracks


def track_of(gaps: Array, durations: Array, kinds: Array) -> tuple[Tracks, list[Slice]]:
    """One track of slices with those gaps before them; a gap below 0 is a handover."""
    starts = np.zeros(len(gaps), np.int64)
    end = 0
    for i, gap in enumerate(gaps.tolist()):
        before = int(starts[i - 1]) if i else 0
        starts[i] = max(before, end + gap)
        durations[i] = max(int(durations[i]), end - int(starts[i]))
        end = int(starts[i]) + int(durations[i])
    bounds = np.array([0, len(gaps)], np.int64)
    zero = np.zeros(1, np.int64)
    tracks = Tracks(starts, durations, kinds.astype(np.uint8), None, bounds, zero, zero)
    columns = (starts.tolist(), durations.tolist(), kinds.tolist())
    return tracks, [Slice(i, *row) for i, row in enumerate(zip(*columns, strict=True))]


def told(found: Tiles) -> list[Tile]:
    columns = (
        found.start_ps,
        found.duration_ps,
        found.place,
        found.kind,
        found.count,
        found.busy_ps,
    )
    return [Tile(*map(int, row)) for row in zip(*columns, strict=True)]


@given(
    st.lists(st.tuples(st.integers(-3, 30), st.integers(0, 40), st.integers(0, 3)), max_size=40),
    st.integers(-20, 600),
    st.integers(1, 600),
    st.integers(1, 60),
)
def test_small_windows(
    rows: list[tuple[int, int, int]], from_ps: int, span: int, pixels: int
) -> None:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    tracks, slices = track_of(columns[:, 0], columns[:, 1].copy(), columns[:, 2])
    found = tiles(pyramid(tracks), np.array([0]), from_ps, from_ps + span, pixels)
    assert told(found) == plain_tiles(slices, from_ps, from_ps + span, pixels)


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(1, 300), st.floats(0, 0.9), st.floats(0.01, 1))
def test_many_events_take_what_is_known_of_groups(
    seed: int, pixels: int, begin: float, share: float
) -> None:
    random = np.random.default_rng(seed)
    count = int(random.integers(2 * LARGE_GROUP, 4 * LARGE_GROUP))
    durations = random.integers(0, 50, count)
    durations[random.random(count) < 0.0005] = 40_000
    tracks, slices = track_of(
        random.integers(-2, 20, count), durations, random.integers(0, 4, count)
    )
    whole = slices[-1].end
    from_ps, span = int(begin * whole), max(1, int(share * whole))
    found = tiles(pyramid(tracks), np.array([0]), from_ps, from_ps + span, pixels)
    assert told(found) == plain_tiles(slices, from_ps, from_ps + span, pixels)


def test_a_pixel_holds_no_more_than_a_block_and_a_slice() -> None:
    random = np.random.default_rng(0)
    tracks, _ = track_of(
        random.integers(0, 9, 9000), random.integers(0, 3000, 9000), random.integers(0, 3, 9000)
    )
    found = tiles(pyramid(tracks), np.array([0]), 0, 10**7, 200)
    assert len(found) <= 2 * 200 + 2
    assert found.count.sum() == np.count_nonzero(tracks.start_ps < 10**7)


@pytest.mark.parametrize("chosen", [[], [0], [1, 0]])
def test_tracks_come_in_the_order_asked_for(chosen: list[int]) -> None:
    starts, durations = np.array([0, 10, 5], np.int64), np.array([4, 4, 4], np.int64)
    bounds, lane = np.array([0, 2, 3], np.int64), np.array([0, 1], np.int64)
    tracks = Tracks(starts, durations, np.zeros(3, np.uint8), None, bounds, lane, lane * 0)
    found = tiles(pyramid(tracks), np.array(chosen, np.int64), 0, 100, 100)
    places = {0: [0, 1], 1: [2]}
    assert found.place.tolist() == [place for track in chosen for place in places[track]]
