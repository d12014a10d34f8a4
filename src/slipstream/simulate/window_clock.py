"""Orders that differ from a known one in one window: only the window is run again.

The clock's state is kept every so many entries of the known order. A changed window is run from the
state before it until the state behind it is the known one, only earlier or later; from there on,
everything happens as before, by that much earlier or later:

    known     ────┬────┬──[ a b c d ]─┬────┬────┬────▶ end
                  ▲ resumed           │    ▲ same state, 3 µs earlier
    changed       └────┬──[ c a d b ]─┴────┘              end - 3 µs

The result is exactly that of a whole run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.events import Array
from slipstream.simulate.clock import (
    AHEAD,
    COUNT,
    END,
    FREE,
    HEAD,
    LAST,
    LAUNCHED,
    LEFT,
    LINK_COUNT,
    NEVER,
    NEXT,
    NODE_SIZE,
    NOW,
    OUT_SIZE,
    QUEUE_SIZE,
    RATE,
    RATE_SIZE,
    READY,
    RUNS,
    SINCE,
    SLOT,
    STATE_SIZE,
    STREAM_SIZE,
    TAIL,
    Clock,
    advance,
    finish_all,
)
from slipstream.simulate.streams import ENGINES

LEAST_STRIDE, MOST_STATES = 32, 256
"""entries between two states that are kept, at least; states that are kept, about"""
# What is kept of a state: itself, the engines, then the streams.
_STREAMS = STATE_SIZE + ENGINES


@inner
def _keep(row, row_size, kept, kept_rates, state, engines, streams, rates):  # type: ignore[no-untyped-def]
    for i in range(STATE_SIZE):
        kept[row_size * row + i] = state[i]
    for i in range(ENGINES):
        kept[row_size * row + STATE_SIZE + i] = engines[i]
    for i in range(STREAM_SIZE * state[COUNT]):
        kept[row_size * row + _STREAMS + i] = streams[i]
    for i in range(RATE_SIZE * state[COUNT]):
        kept_rates[RATE_SIZE * state[COUNT] * row + i] = rates[i]


@inner
def _resume(  # type: ignore[no-untyped-def]
    row, row_size, kept, kept_rates, known_queue, order, nodes,
    state, engines, streams, rates, queue, ends,
):  # fmt: skip
    """Go back to a state that was kept."""
    for i in range(STATE_SIZE):
        state[i] = kept[row_size * row + i]
    for i in range(ENGINES):
        engines[i] = kept[row_size * row + STATE_SIZE + i]
    for i in range(STREAM_SIZE * state[COUNT]):
        streams[i] = kept[row_size * row + _STREAMS + i]
    for i in range(RATE_SIZE * state[COUNT]):
        rates[i] = kept_rates[RATE_SIZE * state[COUNT] * row + i]
    never = np.int64(-1)
    for stream in range(state[COUNT]):
        at = STREAM_SIZE * stream
        place = streams[at + RUNS]
        if place >= 0 and stream > 0:
            ends[nodes[NODE_SIZE * order[place] + SLOT]] = never
        place = streams[at + HEAD]
        while place >= 0:
            is_last = place == streams[at + TAIL]
            ends[nodes[NODE_SIZE * order[place] + SLOT]] = never
            queue[QUEUE_SIZE * place + READY] = known_queue[QUEUE_SIZE * place + READY]
            queue[QUEUE_SIZE * place + NEXT] = (
                never if is_last else known_queue[QUEUE_SIZE * place + NEXT]
            )
            place = queue[QUEUE_SIZE * place + NEXT]


@inner
def _is_shifted(  # type: ignore[no-untyped-def]
    row, row_size, kept, kept_rates, known_queue, first, last,
    state, engines, streams, rates, queue,
):  # fmt: skip
    """Whether the state is the one that was kept, but for the time.

    What a stream that is idle did last is in the past of everything that can still happen.
    """
    at = row_size * row
    shift = state[FREE] - kept[at + FREE]
    if state[FREE] == 0 or kept[at + FREE] == 0 or state[LAUNCHED] != kept[at + LAUNCHED]:
        return False
    if state[NOW] - kept[at + NOW] != shift:
        return False
    for i in range(ENGINES):
        if engines[i] != kept[at + STATE_SIZE + i]:
            return False
    for stream in range(state[COUNT]):
        its, known = STREAM_SIZE * stream, at + _STREAMS + STREAM_SIZE * stream
        place = streams[its + RUNS]
        head = streams[its + HEAD]
        if place != kept[known + RUNS] or head != kept[known + HEAD]:
            return False
        if place < 0 and head < 0:
            continue
        if streams[its + SINCE] - kept[known + SINCE] != shift:
            return False
        if place >= 0:
            rate = RATE_SIZE * stream
            known_rate = RATE_SIZE * (state[COUNT] * row + stream)
            if (
                first <= place < last
                or streams[its + END] - kept[known + END] != shift
                or rates[rate + LEFT] != kept_rates[known_rate + LEFT]
                or rates[rate + RATE] != kept_rates[known_rate + RATE]
            ):
                return False
        if head >= 0 and streams[its + TAIL] != kept[known + TAIL]:
            return False
        place = head
        while place >= 0:
            waits = QUEUE_SIZE * place
            if first <= place < last or queue[waits + READY] - known_queue[waits + READY] != shift:
                return False
            if place == streams[its + TAIL]:
                break
            if queue[waits + NEXT] != known_queue[waits + NEXT]:
                return False
            place = queue[waits + NEXT]
    return True


@native(
    "i64(i32*, i64, i64, i64, i64, i64, i64, i64, i64*, f64*, i64, i64, i64*, f64*, i64*, i64*, "
    "i64*, f64*, i64*, i64*, i64*, i64*, f64*, f64*, i64*, i64*, i64*)"
)
def _run_window(  # type: ignore[no-untyped-def]
    order, count, row, stride, first, last, is_first, row_size, nodes, shares, latency, wake,
    kept, kept_rates, known_queue, margins,
    found, found_rates, found_margins, state, queue, streams, rates, links, engines, ends,
    out,
):  # fmt: skip
    """Run from a state that was kept; returns the one from which on all is as known, or -1."""
    if not is_first:
        _resume(
            row, row_size, kept, kept_rates, known_queue, order, nodes,
            state, engines, streams, rates, queue, ends,
        )  # fmt: skip
    while True:
        _keep(row, row_size, found, found_rates, state, engines, streams, rates)
        place = row * stride
        if place >= count:
            break
        if not is_first and place >= last:
            shift = state[FREE] - kept[row_size * row + FREE]
            if margins[row] >= max(-shift, 0) and _is_shifted(
                row, row_size, kept, kept_rates, known_queue, first, last,
                state, engines, streams, rates, queue,
            ):  # fmt: skip
                return row
        state[AHEAD] = NEVER
        ended = advance(
            place, min(place + stride, count), order, nodes, shares, latency, wake,
            state, queue, streams, rates, links, engines, ends, out,
        )  # fmt: skip
        if ended < 0:
            state[LAST] = NEVER
            return ended
        found_margins[row] = state[AHEAD]
        row += 1
    finish_all(order, nodes, shares, state, queue, streams, rates, links, engines, ends, out)
    return np.int64(-1)


def prepare() -> None:
    """Compile or load what judges windows, which may take longer than a search."""
    _run_window.prepare()


@dataclass(frozen=True)
class _Tried:
    """The window that was run last."""

    first: int
    nodes: Array
    row: int
    """the state that it was run from"""
    back: int
    """the state from which on all is as known, later by `shift`; -1 if there is none"""
    shift: int


class WindowClock:
    """Runs orders that differ from a known one in a window; entries of -1 take no time."""

    def __init__(self, clock: Clock, order: Array) -> None:
        self._clock = clock
        self._order = np.array(order, np.int32)
        count = len(order)
        self._stride = max(LEAST_STRIDE, -(-count // MOST_STATES))
        rows = -(-count // self._stride) + 1
        self._row_size = _STREAMS + STREAM_SIZE * clock.streams
        self._kept, self._found = (np.zeros((rows, self._row_size), np.int64) for _ in range(2))
        rates = RATE_SIZE * clock.streams
        self._kept_rates, self._found_rates = (np.zeros((rows, rates)) for _ in range(2))
        self._ahead, self._found_ahead = (np.full(rows, NEVER, np.int64) for _ in range(2))
        """of each stretch between two states, how far ahead of the compute stream the host was"""
        self._known_queue, self._queue = (np.zeros((count, QUEUE_SIZE), np.int64) for _ in range(2))
        self._known_ends, self._ends = (np.zeros(clock.slots, np.int64) for _ in range(2))
        self._rates, self._links = np.zeros(rates), np.zeros(LINK_COUNT)
        self._engines = np.zeros(ENGINES, np.int64)
        self._out = np.zeros((count, OUT_SIZE), np.int64)
        self._state, self._streams = clock.new_state(), clock.new_streams()
        self._margins = self._ahead
        self._tried = _Tried(0, self._order, 0, self._run(0, 0, count, is_first=True), 0)
        self._keep_rows(0, rows)
        self._known_queue[:] = self._queue
        self._known_ends[:] = self._ends
        self._known_last, self._known_now = int(self._state[LAST]), int(self._state[NOW])

    @property
    def known_ps(self) -> int:
        """When the last node of the known order has ended."""
        return max(self._known_last, self._known_now)

    @property
    def is_taken_up(self) -> bool:
        """Whether the order that was run last goes on as the known one behind its window."""
        return self._tried.back >= 0

    def span_ps(self, first: int, nodes: Array) -> int:
        """When the last node has ended, if the order has these nodes from `first` on instead."""
        window = slice(first, first + len(nodes))
        before = self._order[window].copy()
        self._order[window] = nodes
        np.copyto(self._ends, self._known_ends)
        row = first // self._stride
        back = self._run(row, first, first + len(nodes))
        self._order[window] = before
        last, now = int(self._state[LAST]), int(self._state[NOW])
        if back < 0:
            self._tried = _Tried(first, nodes, row, back, 0)
            return max(last, now)
        shift = int(self._state[FREE] - self._kept[back, FREE])
        self._tried = _Tried(first, nodes, row, back, shift)
        return max(self._last_of_all(last, back, shift), self._known_now + shift)

    def keep(self) -> None:
        """Take the order that was run last for the known one."""
        one = self._tried
        rows = len(self._kept)
        stop = one.back if one.back >= 0 else rows
        self._order[one.first : one.first + len(one.nodes)] = one.nodes
        self._keep_queue(one, stop)
        last = int(self._state[LAST])
        if one.back < 0:
            self._known_ends[:] = self._ends
            self._known_last, self._known_now = last, int(self._state[NOW])
        else:
            later = (self._ends < 0) | (self._known_ends > self._kept[one.back, NOW])
            np.copyto(self._known_ends, np.where(later, self._known_ends + one.shift, self._ends))
            self._known_last = self._last_of_all(last, one.back, one.shift)
            self._known_now += one.shift
            self._shift_rows(one.back, one.shift, last)
        self._keep_rows(one.row, stop)

    def _run(self, row: int, first: int, last: int, *, is_first: bool = False) -> int:
        clock = self._clock
        back = _run_window(
            self._order, len(self._order), row, self._stride, first, last, int(is_first),
            self._row_size, clock.nodes.ravel(), clock.shares.ravel(), clock.latency, clock.wake,
            self._kept.ravel(), self._kept_rates.ravel(), self._known_queue.ravel(), self._margins,
            self._found.ravel(), self._found_rates.ravel(), self._found_ahead, self._state,
            self._queue.ravel(), self._streams.ravel(), self._rates, self._links, self._engines,
            self._ends, self._out.ravel(),
        )  # fmt: skip
        return int(back)

    def _last_of_all(self, last: int, back: int, shift: int) -> int:
        """The last end of a wait: in what was run, or later."""
        is_later = self._known_last > self._kept[back, LAST]
        return max(last, self._known_last + shift) if is_later else last

    def _keep_queue(self, one: _Tried, stop: int) -> None:
        """Take over what waited for streams; behind the window, the same waits."""
        tails: list[int] = []
        if one.back >= 0:
            streams = self._streams_of(one.back)
            tails = streams[streams[:, HEAD] >= 0, TAIL].tolist()
        followers = [int(self._known_queue[tail, NEXT]) for tail in tails]
        changed = [*self._waiting(one.row), *range(one.row * self._stride, stop * self._stride)]
        changed = [place for place in changed if place < len(self._order)]
        self._known_queue[changed] = self._queue[changed]
        for tail, follower in zip(tails, followers, strict=True):
            self._known_queue[tail, NEXT] = follower
        self._known_queue[stop * self._stride :, READY] += one.shift

    def _streams_of(self, row: int) -> Array:
        return self._kept[row, _STREAMS:].reshape(-1, STREAM_SIZE)

    def _waiting(self, row: int) -> list[int]:
        """The places that wait for their streams in a state."""
        found = []
        for stream in self._streams_of(row):
            place = int(stream[HEAD])
            while place >= 0:
                found.append(place)
                place = int(self._known_queue[place, NEXT]) if place != stream[TAIL] else -1
        return found

    def _shift_rows(self, back: int, shift: int, last: int) -> None:
        rows = self._kept[back:]
        is_later = rows[:, LAST] > rows[0, LAST]
        lasts = np.where(is_later, rows[:, LAST] + shift, last)
        rows[:, LAST] = np.maximum(lasts, last)
        rows[:, [NOW, FREE]] += shift
        streams = rows[:, _STREAMS:].reshape(len(rows), -1, STREAM_SIZE)
        streams[:, :, [SINCE, END]] += shift
        self._ahead[back:-1] += shift

    def _keep_rows(self, first: int, stop: int) -> None:
        for kept, found in (
            (self._kept, self._found),
            (self._kept_rates, self._found_rates),
            (self._ahead, self._found_ahead),
        ):
            kept[first:stop] = found[first:stop]
        self._margins = np.minimum.accumulate(self._ahead[::-1])[::-1].copy()
