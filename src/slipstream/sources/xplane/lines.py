"""Where the events of a line lie: one native pass over its fields, before any decoding.

    XSpace { planes=1 }   XPlane { lines=3 }
    XLine  { id=1, name=2, timestamp_ns=3, events=4: XEvent*, display_name=11 }

Needs no numpy, so that a long file can be walked while Python imports it (see `prefetch`).
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

from slipstream.native import inner, native
from slipstream.sources.wire import BYTES, OK, VARINT, read_value, read_varint

EVENTS = 4 << 3 | BYTES
EVENT_ID = 1 << 3 | VARINT
CHUNK_EVENTS = 1 << 18
"""events that a thread decodes at a time: between two chunks it may wait for Python"""
LONG_PART = 8 << 20
"""bytes that are worth a thread"""
_CERTAIN = 64
"""consecutive events that make a guess worth trying"""
_PLANES, _LINES = 1 << 3 | BYTES, 3 << 3 | BYTES
_ID, _NAME, _TIME = 1 << 3 | VARINT, 2 << 3 | BYTES, 3 << 3 | VARINT
_TITLE = 11 << 3 | BYTES


@native("i64(u8*, i64, i64, i64, i64*, i64*, i64*, i64, i64*)")
def _scan(data, at, end, every, header, starts, counts, most, stopped):  # type: ignore[no-untyped-def]
    """Chunks of `every` events; `header` gets the line's (id, time, name, title) as it passes.

    Texts are stored as (offset, length). `stopped` gets (offset, status). Returns how many chunks.
    """
    chunks = 0
    count = 0
    begin = at
    status = OK
    while at < end and chunks < most:
        tag, after, status = read_varint(data, at, end)
        if status != OK:
            break
        value, payload, after, status = read_value(data, after, end, tag & 7)
        if status != OK:
            break
        if tag == EVENTS:
            count += 1
        elif tag == _ID:
            header[0] = value
        elif tag == _TIME:
            header[1] = value
        elif tag == _NAME:
            header[2] = payload
            header[3] = value
        elif tag == _TITLE:
            header[4] = payload
            header[5] = value
        at = after
        if count == every:
            starts[chunks] = begin
            counts[chunks] = count
            chunks += 1
            count = 0
            begin = at
    if count and chunks < most:
        starts[chunks] = begin
        counts[chunks] = count
        chunks += 1
    stopped[0] = at
    stopped[1] = status
    return chunks


@native("i64(u8*, i64, i64, i64)")
def _guess(data, at, end, wanted):  # type: ignore[no-untyped-def]
    """An offset from which `wanted` events seem to follow each other; `end` if there is none."""
    while at < end:
        place = at
        count = 0
        while place < end and data[place] == EVENTS and count < wanted:
            length, inside, status = read_varint(data, place + 1, end)
            if status != OK or length < 2 or length > end - inside:
                break
            if data[inside] != EVENT_ID:
                break
            place = inside + length
            count += 1
        if count == wanted:
            return at
        at += 1
    return end


@inner
def _next(data, at, end):  # type: ignore[no-untyped-def]
    """(tag, payload offset, next offset, status) of the field at an offset."""
    tag, after, status = read_varint(data, at, end)
    if status != OK:
        return tag, after, after, status
    _, payload, after, status = read_value(data, after, end, tag & 7)
    return tag, payload, after, status


@native("i64(u8*, i64, i64, i64*, i64)")
def _find(data, size, least, places, most):  # type: ignore[no-untyped-def]
    """Lines of at least `least` bytes in a file, as (start, end), up to the first invalid byte."""
    count = 0
    at = 0
    while at < size and count < most:
        tag, inside, at, status = _next(data, at, size)
        if status != OK:
            break
        while tag == _PLANES and inside < at and count < most:
            field, payload, inside, status = _next(data, inside, at)
            if status != OK:
                break
            if field == _LINES and inside - payload >= least:
                places[2 * count] = payload
                places[2 * count + 1] = inside
                count += 1
        if status != OK:
            break
    return count


Scan = tuple[list[int], list[int], list[int], int, int]
"""(starts, counts, header, offset, status); see `scan_line`"""


def long_lines(data: Any, size: int, most: int = 64) -> list[tuple[int, int]]:
    """(start, end) of the lines that are worth more than one thread."""
    places = (ctypes.c_int64 * (2 * most))()
    count = _find(data, size, 2 * LONG_PART, places, most)
    return [(places[2 * i], places[2 * i + 1]) for i in range(count)]


def scan_line(data: Any, start: int, end: int, every: int, parts: int = 1) -> Scan:
    """A line's events in chunks that can be decoded in parallel.

    Returns (starts, counts, header, offset, status): where each chunk of `every` events starts,
    how many it has, and the line's (id, time, name offset, length, title offset, length).

    Where a field ends is only known after walking up to it. So a long line is walked in `parts` at
    once, from guessed offsets: a guess was right if the walk before it ends exactly there.
    """
    if parts < 2 or end - start < parts * LONG_PART:
        return _scan_part(data, start, end, every)
    aims = [start + (end - start) * i // parts for i in range(1, parts)]
    bounds = [start, *(_guess(data, at, end, _CERTAIN) for at in aims), end]
    found = _scan_parts(data, bounds, every)
    for (*_, at, status), bound in zip(found, bounds[1:], strict=True):
        if status != OK or at != bound:
            return _scan_part(data, start, end, every)
    header = [0] * 6
    for _, _, own, _, _ in found:
        for first, last in ((0, 1), (1, 2), (2, 4), (4, 6)):
            header[first:last] = own[first:last] if own[first] else header[first:last]
    starts = [start for part in found for start in part[0]]
    return starts, [count for part in found for count in part[1]], header, end, OK


def _scan_parts(data: Any, bounds: list[int], every: int) -> list[Scan]:
    found: dict[int, Scan] = {}

    def scan(part: int) -> None:
        found[part] = _scan_part(data, bounds[part], bounds[part + 1], every)

    others = [threading.Thread(target=scan, args=(i,)) for i in range(1, len(bounds) - 1)]
    for thread in others:
        thread.start()
    scan(0)
    for thread in others:
        thread.join()
    return [found[part] for part in sorted(found)]


def _scan_part(data: Any, start: int, end: int, every: int) -> Scan:
    # An event takes at least two bytes.
    most = max(end - start, 0) // (2 * every) + 2
    starts, counts = (ctypes.c_int64 * most)(), (ctypes.c_int64 * most)()
    header, stopped = (ctypes.c_int64 * 6)(), (ctypes.c_int64 * 2)()
    chunks = _scan(data, start, end, every, header, starts, counts, most, stopped)
    return starts[:chunks], counts[:chunks], header[:], stopped[0], stopped[1]
