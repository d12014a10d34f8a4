"""Events of a lane laid out on tracks."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders import profile
from serve.plain import Slice, plain_tracks
from slipstream.profile.events import EVENT_COLUMNS, Table
from slipstream.profile.profile import Lane
from slipstream.serve.tracks import HANDOVER_PS, Tracks, tracks_of

LANES = (
    Lane("stream", 0, 0, "stream"),
    Lane("ops", 0, 0, "ops"),
    Lane("python", 0, None, "thread"),
)
# Around the longest handover, where streams and other lanes differ.
TIMES = st.integers(0, 3 * HANDOVER_PS // 10**6).map(lambda us: us * 10**6)
ROWS = st.lists(st.tuples(TIMES, TIMES, st.integers(0, 2)), max_size=40)


def table_of(rows: list[tuple[int, int, int]]) -> Table:
    columns = np.array(rows, np.int64).reshape(-1, 3)
    empty = {c.name: np.zeros(len(rows), c.dtype) for c in EVENT_COLUMNS}
    times = {"start_ps": columns[:, 0].copy(), "duration_ps": columns[:, 1].copy()}
    return Table(EVENT_COLUMNS, {**empty, **times, "lane": columns[:, 2].astype(np.int32)}, [""])


def told(tracks: Tracks) -> list[tuple[int, int, list[int]]]:
    """(lane, depth, rows) of each track."""
    bounds = tracks.bounds.tolist()
    return [
        (int(lane), int(depth), tracks.rows(np.arange(bounds[i], bounds[i + 1])).tolist())
        for i, (lane, depth) in enumerate(zip(tracks.lane, tracks.depth, strict=True))
    ]


@given(ROWS)
def test_every_event_goes_to_the_first_track_it_fits_on(rows: list[tuple[int, int, int]]) -> None:
    found = told(tracks_of(table_of(rows), LANES, np.zeros(len(rows), np.uint8)))
    expected = []
    for number, lane in enumerate(LANES):
        own = [
            Slice(i, start, length, 0) for i, (start, length, of) in enumerate(rows) if of == number
        ]
        for depth, track in enumerate(plain_tracks(own, lane.role == "stream")):
            expected.append((number, depth, [one.row for one in track]))
    assert sorted(found) == expected


def test_recorded_order_is_kept_without_a_copy() -> None:
    built = profile().kernel("dot.1", 10).kernel("dot.2", 10, hidden=1).build()
    tracks = tracks_of(built.events, built.lanes, np.zeros(2, np.uint8))
    assert tracks.order is None
    assert tracks.start_ps is built.events["start_ps"]


def test_columns_follow_the_tracks() -> None:
    rows = [(50, 10, 1), (0, 100, 1), (20, 10, 1)]
    tracks = tracks_of(table_of(rows), LANES, np.array([0, 1, 2], np.uint8))
    assert told(tracks) == [(1, 0, [1]), (1, 1, [2, 0])]
    assert (tracks.start_ps.tolist(), tracks.kind.tolist()) == ([0, 20, 50], [1, 2, 0])
    assert (tracks.track(1, 1), tracks.track(2, 0)) == (1, None)
