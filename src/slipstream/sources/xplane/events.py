"""XEvents into columns: one native walk over the bytes of a line's events.

    XLine  { events=4: XEvent* }
    XEvent { metadata_id=1, offset_ps=2, duration_ps=3, stats=4: XStat* }
    XStat  { metadata_id=1, double=2 | uint64=3 | int64=4 | str=5 | bytes=6 | ref=7 }

Which stats are wanted, and where they go, comes as a lookup from stat id to slot: slots 0 to 15
are numbers, slots 16 to 31 are texts. The first numbers vary from event to event and get a column
each. The others, the texts and the kind of event make up its tag, and an event's row holds the
number of its tag: millions of events have a few hundred. Events of one instruction mostly end in
the same bytes, their tail, so the tag is mostly found by comparing the tail with earlier ones:

    event   metadata_id, offset_ps, duration_ps, correlation_id │ hlo_op, hlo_module, details …
            own columns                                         │ tail: skipped if seen before

Texts by reference become indices of the caller's texts at once; texts written out in the event are
interned per chunk, by their bytes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.events import Array
from slipstream.sources.wire import (
    BYTES,
    FULL,
    OK,
    TRUNCATED,
    VARINT,
    read_long_varint,
    read_value,
    read_varint,
)
from slipstream.sources.xplane.lines import EVENTS
from slipstream.sources.xplane.tails import MOST_TAILS, TAIL_WIDTH, find_tail, follow, remember

TEXT_SLOT = 16
NO_SLOT = -1
CONSTANT_SLOT = -2
"""stats that are not wanted, and known to be the same for all events of one instruction"""
MOST_SPANS = 8192
"""distinct written-out texts that one call can hold"""
MOST_TAGS = 8192
"""tags that one call can hold"""

_METADATA_ID = 1 << 3 | VARINT
_OFFSET_PS = 2 << 3 | VARINT
_DURATION_PS = 3 << 3 | VARINT
_STATS = 4 << 3 | BYTES
_UINT64 = 3 << 3 | VARINT
_INT64 = 4 << 3 | VARINT
_STR = 5 << 3 | BYTES
_REF = 7 << 3 | VARINT

# Numba passes no structures, so these arrays have named places.
_AT, _END, _COUNT, _BASE_PS, _ROW, _ROWS, _VARYING, _SHARED, _WIDTH = range(9)
"""a job: where its events lie, how many; their line's time; rows; numbers; values of a tag"""
_STOPPED_AT, _STATUS, _TEXTS, _TAGS, _PREVIOUS = range(5)
"""the state of a call: where and why it stopped, texts and tags so far, the last event's tail"""


@inner
def _look_up(table, key, default):  # type: ignore[no-untyped-def]
    """Value of an id in a `lookup`: by position where ids are small, by bisection elsewhere."""
    size = table[0]
    if 0 <= key < size:
        return table[2 + key]
    count = table[1]
    ids = 2 + size
    low, high = ids, ids + count
    while low < high:
        middle = (low + high) >> 1
        if table[middle] < key:
            low = middle + 1
        else:
            high = middle
    if low < ids + count and table[low] == key:
        return table[low + count]
    return np.int64(default)


@inner
def _intern(data, payload, length, table, spans, used):  # type: ignore[no-untyped-def]
    """Index of a written-out text among this chunk's; open addressing by its bytes' hash."""
    code = np.uint64(14695981039346656037)
    for i in range(length):
        code = (code ^ np.uint64(data[payload + i])) * np.uint64(1099511628211)
    slot = np.int64(code & np.uint64(2 * MOST_SPANS - 1))
    while table[slot] >= 0:
        known = np.int64(table[slot])
        if spans[2 * known + 1] == length:
            same = True
            for i in range(length):
                if data[spans[2 * known] + i] != data[payload + i]:
                    same = False
                    break
            if same:
                return known
        slot = (slot + 1) & (2 * MOST_SPANS - 1)
    table[slot] = used
    spans[2 * used] = payload
    spans[2 * used + 1] = length
    return used


@inner
def _tag_of(values, width, table, used):  # type: ignore[no-untyped-def]
    """Index of what `values` holds at place `used` among the tags before; `used` if it is new."""
    fresh = used * width
    code = np.uint64(0)
    for i in range(width):
        code = (code ^ np.uint64(values[fresh + i])) * np.uint64(0xFF51AFD7ED558CCD)
        code ^= code >> np.uint64(32)
    slot = np.int64(code & np.uint64(2 * MOST_TAGS - 1))
    while table[slot] >= 0:
        known = np.int64(table[slot])
        same = True
        for i in range(width):
            if values[known * width + i] != values[fresh + i]:
                same = False
                break
        if same:
            return known
        slot = (slot + 1) & (2 * MOST_TAGS - 1)
    if used < MOST_TAGS:
        table[slot] = used
    return used


@inner
def _read_stat(data, at, end, stat_id, field):  # type: ignore[no-untyped-def]
    """(id, kind, number or length, payload, last field, status) of the rest of a stat."""
    kind = np.int64(0)
    content = np.int64(0)
    payload = at
    status = OK
    # What follows the id is a single number or reference, nearly always.
    if stat_id > 0 and (data[at] == _INT64 or data[at] == _UINT64 or data[at] == _REF):
        kind = np.int64(data[at])
        content, at, status = read_long_varint(data, at + 1, end)
    while status == OK and at < end:
        field = at
        field_tag, at, status = read_varint(data, at, end)
        if status != OK:
            break
        value, place, at, status = read_value(data, at, end, field_tag & 7)
        if status != OK:
            break
        if field_tag == _METADATA_ID:
            stat_id = value
        elif field_tag <= _REF:
            kind = field_tag
            content = value
            payload = place
    return stat_id, kind, content, payload, field, status


@inner
def _text_index(data, kind, content, payload, refs, spans, text_table, state):  # type: ignore[no-untyped-def]
    """(index of a text, status): the caller's index by reference, -1 - i if written out."""
    if kind == _REF:
        return _look_up(refs, content, 0), OK
    used = state[_TEXTS]
    if used == MOST_SPANS:
        return np.int64(0), FULL
    index = _intern(data, payload, content, text_table, spans, used)
    if index == used:
        state[_TEXTS] = used + 1
    return -1 - index, OK


@inner
def _read_number(data, at, end, wire_type):  # type: ignore[no-untyped-def]
    """(value, next offset, status) of a field of an event that is no stat."""
    if wire_type == VARINT:
        return read_long_varint(data, at, end)
    value, _, after, status = read_value(data, at, end, wire_type)
    return value, after, status


@inner
def _enter_stat(data, at, end):  # type: ignore[no-untyped-def]
    """(id if it comes first and is small, else 0; what follows it; end of the stat; status)."""
    length, at, status = read_varint(data, at, end)
    if status == OK and (length < 0 or length > end - at):
        status = TRUNCATED
    if status != OK:
        return np.int64(0), at, at, status
    after = at + length
    if length > 2 and data[at] == _METADATA_ID and data[at + 1] < 0x80:
        return np.int64(data[at + 1]), at + 2, after, OK
    if length > 3 and data[at] == _METADATA_ID and data[at + 2] < 0x80:
        return np.int64((data[at + 1] & 0x7F) + 128 * data[at + 2]), at + 3, after, OK
    return np.int64(0), at, after, OK


@inner
def _clear(values, first, width):  # type: ignore[no-untyped-def]
    for i in range(width):
        values[first + i] = 0


@inner
def _add_tag(values, tag_table, width, state):  # type: ignore[no-untyped-def]
    """(number of the tag whose values were collected, status)."""
    used = state[_TAGS]
    tag = _tag_of(values, width, tag_table, used)
    if tag == MOST_TAGS:
        return tag, FULL
    if tag == used:
        state[_TAGS] = used + 1
    return tag, OK


@inner
def _decode_event(  # type: ignore[no-untyped-def]
    data, event, at, end, row, job, slots, refs, kinds, columns,
    values, tag_table, tails, spans, text_table, state,
):  # fmt: skip
    """(tag, start, duration, last field, status) of the event whose fields lie at `at`.

    One loop with early exits: most events leave it at their tail, after four or five fields.
    """
    start, duration, event_id = job[_BASE_PS], np.int64(0), np.int64(0)
    varying, width = job[_VARYING], job[_WIDTH]
    new = state[_TAGS] * width
    tag, seen = np.int64(-1), np.int64(0)
    tail, tail_slot, seen_before = np.int64(0), np.int64(0), np.int64(0)
    is_plain = True  # whether nothing after the tail's start varies
    field = at
    status = OK
    while at < end:
        field = at
        field_tag, at, status = read_varint(data, at, end)
        if status != OK:
            break
        if field_tag != _STATS:
            value, at, status = _read_number(data, at, end, field_tag & 7)
            if status != OK:
                break
            is_plain = is_plain and tail == 0
            if field_tag == _METADATA_ID:
                event_id = value
            elif field_tag == _OFFSET_PS:
                start = job[_BASE_PS] + value
            elif field_tag == _DURATION_PS:
                duration = value
            continue
        stat_id, inside, at, status = _enter_stat(data, at, end)
        if status != OK:
            break
        slot = np.int64(NO_SLOT)
        if 0 < stat_id < slots[0]:
            slot = slots[2 + stat_id]
            if slot == NO_SLOT:
                continue  # as most stats: not wanted
        if tail == 0 and (slot >= varying or slot == CONSTANT_SLOT):
            tail, seen_before = field, seen
            if end - tail >= 8:
                tail_slot, tag = find_tail(data, tail, end, event_id, seen, tails, state[_PREVIOUS])
                if tag >= 0:
                    break
            _clear(values, new, width)
        if slot == CONSTANT_SLOT:
            continue
        stat_id, kind, content, payload, field, status = _read_stat(
            data, inside, at, stat_id, field
        )
        if status != OK:
            break
        slot = _look_up(slots, stat_id, NO_SLOT)
        if slot >= varying and tail == 0:
            tail, is_plain = event, False
            _clear(values, new, width)
        if slot >= TEXT_SLOT and (kind == _REF or kind == _STR):
            place = new + 2 + job[_SHARED] + slot - TEXT_SLOT
            values[place], status = _text_index(
                data, kind, content, payload, refs, spans, text_table, state
            )
            if status != OK:
                break
            seen |= 1 << slot
        elif 0 <= slot < TEXT_SLOT and (kind == _INT64 or kind == _UINT64):
            if slot < varying:
                columns[(2 + slot) * job[_ROWS] + row] = content
                is_plain = is_plain and tail == 0
            else:
                values[new + 2 + slot - varying] = content
            seen |= 1 << slot
    if status == OK and tag < 0:
        if tail == 0:
            _clear(values, new, width)
        values[new] = _look_up(kinds, event_id, 0)
        values[new + 1] = seen
        tag, status = _add_tag(values, tag_table, width, state)
        if status == OK and is_plain and tail > 0 and end - tail >= 8:
            remember(tails, tail_slot, tail, end, event_id, seen_before, tag)
    if status == OK:
        state[_PREVIOUS] = follow(tails, state[_PREVIOUS], tail_slot)
    return tag, start, duration, field, status


@native("i64(u8*, i64*, i64*, i64*, i64*, i32*, i64*, i64*, i32*, i64*, i64*, i32*, i64*)")
def _decode(  # type: ignore[no-untyped-def]
    data, job, slots, refs, kinds, tags, columns,
    values, tag_table, tails, spans, text_table, state,
):  # fmt: skip
    """Decode a job's events into its rows; returns how many were decoded.

    Status FULL: more written-out texts or tags than there is room for; what was decoded is whole,
    and the caller goes on from where the call stopped.
    """
    at = job[_AT]
    row = job[_ROW]
    done = 0
    field = at
    status = OK
    while done < job[_COUNT]:
        event = at
        field = at
        field_tag, at, status = read_varint(data, at, job[_END])
        if status != OK:
            break
        _, payload, at, status = read_value(data, at, job[_END], field_tag & 7)
        if status != OK:
            break
        if field_tag != EVENTS:
            continue
        tag, start, duration, field, status = _decode_event(
            data, event, payload, at, row, job, slots, refs, kinds, columns,
            values, tag_table, tails, spans, text_table, state,
        )  # fmt: skip
        if status != OK:
            if status == FULL:
                field = event
            break
        tags[row] = tag
        columns[row] = start
        columns[job[_ROWS] + row] = duration
        row += 1
        done += 1
        field = at
    state[_STOPPED_AT] = field
    state[_STATUS] = status
    return done


_DENSE_LIMIT = 1 << 20


def lookup(values: dict[int, int], default: int) -> Array:
    """A map from ids to values as the decoder takes it.

    One array: (n, m, values of ids 0 to n - 1, the m other ids ascending, their values).
    """
    small = {k: v for k, v in values.items() if 0 <= k < _DENSE_LIMIT}
    dense = np.full(max(small, default=-1) + 1, default, np.int64)
    dense[list(small)] = list(small.values())
    large = sorted((k, v) for k, v in values.items() if k not in small)
    sparse = np.array([*(k for k, _ in large), *(v for _, v in large)], np.int64)
    return np.concatenate((np.array([len(dense), len(large)], np.int64), dense, sparse))


@dataclass(frozen=True)
class Columns:
    """What events are decoded into: the tag of each, its start, its duration, varying numbers."""

    tags: Array
    values: Array
    """(2 + varying numbers) by rows: start_ps, duration_ps, then the numbers"""

    @classmethod
    def of(cls, rows: int, varying: int) -> Columns:
        return cls(np.empty(rows, np.int32), np.zeros((2 + varying, rows), np.int64))


@dataclass(frozen=True)
class Wanted:
    """Which stats of a plane are decoded, and where they go."""

    slots: Array
    """stat id to slot"""
    refs: Array
    """stat id to text: a stat that refers to another means that one's name"""
    kinds: Array
    """event id to index of its metadata"""
    varying: int
    """numbers that each event has of its own"""
    shared: int
    """numbers that belong to the tag"""
    texts: int

    @property
    def width(self) -> int:
        """Values of a tag: metadata, stats seen, numbers, texts."""
        return 2 + self.shared + self.texts


@dataclass(frozen=True)
class Chunk:
    """Events of one line that are decoded at once: where they lie and where they go."""

    line: int
    start: int
    end: int
    count: int
    base_ps: int
    row: int


@dataclass(frozen=True)
class DecodedRows:
    """Rows that one call decoded; their tags and written-out texts are numbered on their own."""

    first: int
    last: int
    tags: Array
    """a row for each tag: index of the event's metadata, bits of its stats, numbers, texts"""
    spans: Array
    """where each written-out text lies; a tag's text -1 - i is the i-th"""


class _Scratch(threading.local):
    """What a call writes to, made once for each thread."""

    def __init__(self) -> None:
        self.tag_table = np.empty(2 * MOST_TAGS, np.int32)
        self.text_table = np.empty(2 * MOST_SPANS, np.int32)
        self.tails = np.empty(TAIL_WIDTH * MOST_TAILS, np.int64)
        self.spans = np.empty((MOST_SPANS, 2), np.int64)
        self.values = np.empty(0, np.int64)
        self.state = np.zeros(_PREVIOUS + 1, np.int64)

    def clear(self, width: int) -> None:
        self.tag_table.fill(-1)
        self.text_table.fill(-1)
        self.tails.fill(0)
        self.state.fill(0)
        if len(self.values) < (MOST_TAGS + 1) * width:
            self.values = np.empty((MOST_TAGS + 1) * width, np.int64)


_SCRATCH = _Scratch()


def decode_events(
    data: Array, chunk: Chunk, wanted: Wanted, out: Columns
) -> tuple[list[DecodedRows], int, int]:
    """Decode a chunk's events; returns what was decoded, where the walk stopped and its status."""
    width = wanted.width
    at, row, count = chunk.start, chunk.row, chunk.count
    decoded = []
    while count:
        _SCRATCH.clear(width)
        place = (at, chunk.end, count, chunk.base_ps, row, len(out.tags))
        job = np.array([*place, wanted.varying, wanted.shared, width], np.int64)
        done = _decode(
            data, job, wanted.slots, wanted.refs, wanted.kinds, out.tags, out.values,
            _SCRATCH.values, _SCRATCH.tag_table, _SCRATCH.tails, _SCRATCH.spans,
            _SCRATCH.text_table, _SCRATCH.state,
        )  # fmt: skip
        at, status, texts, tags, _ = _SCRATCH.state.tolist()
        values = _SCRATCH.values[: tags * width].reshape(tags, width).copy()
        decoded.append(DecodedRows(row, row + done, values, _SCRATCH.spans[:texts].copy()))
        if status not in (OK, FULL) or (status == FULL and not done):
            return decoded, at, status
        row, count = row + done, count - done
    return decoded, at, OK
