"""XEvents into columns: one native walk over the bytes of a line's events.

    XLine  { events=4: XEvent* }
    XEvent { metadata_id=1, offset_ps=2, duration_ps=3, stats=4: XStat* }
    XStat  { metadata_id=1, double=2 | uint64=3 | int64=4 | str=5 | bytes=6 | ref=7 }

Which stats are wanted, and where they go, comes as a lookup from stat id to slot: slots 0 to 15
are numbers, slots 16 to 31 are texts. The first numbers vary from event to event and get a column
each. The others, the texts and the kind of event make up its tag, and an event's row holds the
number of its tag: millions of events have a few hundred. Events of one instruction mostly end in
the same bytes, so the tag is mostly found by comparing bytes with those of an event before.

Texts by reference become indices of the caller's texts at once; texts written out in the event are
interned per chunk, by their bytes.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np

from slipstream.native import inner, native, word_at
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

TEXT_SLOT = 16
NO_SLOT = -1
STILL_SLOT = -2
"""stats that are not wanted, and known to be the same for all events of one instruction"""
MOST_SPANS = 8192
"""distinct written-out texts that one call can hold"""
MOST_TAGS = 8192
"""tags that one call can hold"""
MEMORY = 4096
"""tails of events that are remembered"""
_WIDTH, _TAG, _NEXT = 6, 4, 5
"""of each: length, the event's id, marks before it, where it lies, its tag, what came after it"""

_METADATA_ID = 1 << 3 | VARINT
_OFFSET = 2 << 3 | VARINT
_DURATION = 3 << 3 | VARINT
_STATS = 4 << 3 | BYTES
_UINT64 = 3 << 3 | VARINT
_INT64 = 4 << 3 | VARINT
_STR = 5 << 3 | BYTES
_REF = 7 << 3 | VARINT


@inner
def _look_up(dense, size, ids, values, count, key, default):  # type: ignore[no-untyped-def]
    """Value of an id: by position where ids are small, by bisection where they are not."""
    if 0 <= key < size:
        return dense[key]
    low, high = 0, count
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < key:
            low = middle + 1
        else:
            high = middle
    if low < count and ids[low] == key:
        return values[low]
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
def _same_bytes(data, one, other, length):  # type: ignore[no-untyped-def]
    """Whether two stretches of at least eight bytes are equal."""
    for i in range(length >> 3):
        if word_at(data, one + 8 * i) != word_at(data, other + 8 * i):
            return False
    return word_at(data, one + length - 8) == word_at(data, other + length - 8)


@inner
def _memo_slot(data, at, length, event_id):  # type: ignore[no-untyped-def]
    """Where an event's tail, of at least eight bytes, would be remembered."""
    code = np.uint64(event_id) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(length)
    for i in range(length >> 3):
        code = (code ^ word_at(data, at + 8 * i)) * np.uint64(0xFF51AFD7ED558CCD)
        code ^= code >> np.uint64(29)
    code = (code ^ word_at(data, at + length - 8)) * np.uint64(0xFF51AFD7ED558CCD)
    return np.int64(code >> np.uint64(40)) & (MEMORY - 1)


@inner
def _is_remembered(data, tail, at, event_id, marks, memory, place):  # type: ignore[no-untyped-def]
    """Whether an event with that tail is what a place in memory remembers."""
    return (
        memory[place] == at - tail
        and memory[place + 1] == event_id
        and memory[place + 2] == marks
        and _same_bytes(data, tail, memory[place + 3], at - tail)
    )


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


@native(
    "i64(u8*, i64, i64, i64, i64,"
    " i64*, i64, i64*, i64*, i64, i64*, i64, i64*, i64*, i64, i64*, i64, i64*, i64*, i64,"
    " i32*, i64*, i64*, i64*, i64, i64, i64, i64, i64,"
    " i64*, i32*, i64*, i32*, i64*, i64*)"
)
def _decode(  # type: ignore[no-untyped-def]
    data, at, end, count, base_ps,
    slots, slots_size, slot_ids, slot_values, slots_more,
    refs, refs_size, ref_ids, ref_values, refs_more,
    kinds, kinds_size, kind_ids, kind_values, kinds_more,
    tags, start_ps, duration_ps, numbers, rows, row, varying, shared, width,
    values, tag_table, memory, text_table, spans, stopped,
):  # fmt: skip
    """Decode `count` events from `at` into rows from `row` on; returns how many were decoded.

    `stopped` gets (offset, status, texts interned, tags). Status FULL: more written-out texts or
    tags than there is room for; what was decoded is whole, and the caller goes on from the offset.
    """
    done = 0
    used_texts = 0
    used_tags = 0
    status = OK
    field = at
    before = np.int64(0)
    while done < count:
        event = field = at
        tag, at, status = read_varint(data, at, end)
        if status != OK:
            break
        length, position, at, status = read_value(data, at, end, tag & 7)
        if status != OK:
            break
        if tag != EVENTS:
            continue
        begin = base_ps
        duration = 0
        event_id = 0
        marks = 0
        fresh = used_tags * width
        tail = 0
        head_marks = 0
        place_in_memory = np.int64(0)
        is_plain = True
        found = -1
        while position < at:
            field = position
            tag, position, status = read_varint(data, position, at)
            if status != OK:
                break
            if tag != _STATS:
                if tag & 7 == VARINT:
                    value, position, status = read_long_varint(data, position, at)
                else:
                    value, payload, position, status = read_value(data, position, at, tag & 7)
                if status != OK:
                    break
                is_plain = is_plain and tail == 0
                if tag == _METADATA_ID:
                    event_id = value
                elif tag == _OFFSET:
                    begin = base_ps + value
                elif tag == _DURATION:
                    duration = value
                continue
            length, inside, status = read_varint(data, position, at)
            if status == OK and (length < 0 or length > at - inside):
                status = TRUNCATED
            if status != OK:
                break
            position = inside + length
            stat_id = 0
            slot = np.int64(NO_SLOT)
            # The id comes first and is small, and most stats are not wanted: skip those whole.
            if length > 2 and data[inside] == _METADATA_ID and data[inside + 1] < 0x80:
                stat_id = data[inside + 1] + 0
                inside += 2
            elif length > 3 and data[inside] == _METADATA_ID and data[inside + 2] < 0x80:
                stat_id = (data[inside + 1] & 0x7F) + 128 * data[inside + 2]
                inside += 3
            if 0 < stat_id < slots_size:
                slot = slots[stat_id]
                if slot == NO_SLOT:
                    continue
            if tail == 0 and (slot >= varying or slot == STILL_SLOT):
                # What follows is the same for all events of one instruction, and was seen before.
                tail = field
                head_marks = marks
                for i in range(width):
                    values[fresh + i] = 0
                if at - tail >= 8:
                    # What came after the event before, the last time, mostly comes again.
                    place_in_memory = memory[before + _NEXT]
                    if _is_remembered(data, tail, at, event_id, marks, memory, place_in_memory):
                        found = memory[place_in_memory + _TAG]
                        break
                    place_in_memory = _WIDTH * _memo_slot(data, tail, at - tail, event_id)
                    if _is_remembered(data, tail, at, event_id, marks, memory, place_in_memory):
                        found = memory[place_in_memory + _TAG]
                        break
            if slot == STILL_SLOT:
                continue
            kind = 0
            content = 0
            place = 0
            # What follows is a single number or reference, nearly always.
            if stat_id > 0 and (
                data[inside] == _INT64 or data[inside] == _UINT64 or data[inside] == _REF
            ):
                kind = data[inside] + 0
                content, inside, status = read_long_varint(data, inside + 1, position)
                if status != OK:
                    break
            while inside < position:
                field = inside
                stat_tag, inside, status = read_varint(data, inside, position)
                if status != OK:
                    break
                value, payload, inside, status = read_value(data, inside, position, stat_tag & 7)
                if status != OK:
                    break
                if stat_tag == _METADATA_ID:
                    stat_id = value
                elif stat_tag <= _REF:
                    kind = stat_tag
                    content = value
                    place = payload
            if status != OK:
                break
            slot = _look_up(slots, slots_size, slot_ids, slot_values, slots_more, stat_id, NO_SLOT)
            if slot >= varying and tail == 0:
                tail = event
                is_plain = False
                for i in range(width):
                    values[fresh + i] = 0
            if slot >= TEXT_SLOT:
                if kind == _REF:
                    content = _look_up(refs, refs_size, ref_ids, ref_values, refs_more, content, 0)
                elif kind == _STR:
                    if used_texts == MOST_SPANS:
                        status = FULL
                        break
                    index = _intern(data, place, content, text_table, spans, used_texts)
                    if index == used_texts:
                        used_texts += 1
                    content = -1 - index
                else:
                    continue
                values[fresh + 2 + shared + slot - TEXT_SLOT] = content
                marks |= 1 << slot
            elif slot >= 0 and (kind == _INT64 or kind == _UINT64):
                if slot < varying:
                    numbers[slot * rows + row] = content
                    is_plain = is_plain and tail == 0
                else:
                    values[fresh + 2 + slot - varying] = content
                marks |= 1 << slot
        if status == OK and found < 0:
            if tail == 0:
                for i in range(width):
                    values[fresh + i] = 0
            values[fresh] = _look_up(
                kinds, kinds_size, kind_ids, kind_values, kinds_more, event_id, 0
            )
            values[fresh + 1] = marks
            found = _tag_of(values, width, tag_table, used_tags)
            if found == MOST_TAGS:
                status = FULL
            elif found == used_tags:
                used_tags += 1
            if status == OK and is_plain and tail > 0 and at - tail >= 8:
                memory[place_in_memory] = at - tail
                memory[place_in_memory + 1] = event_id
                memory[place_in_memory + 2] = head_marks
                memory[place_in_memory + 3] = tail
                memory[place_in_memory + _TAG] = found
        if status != OK:
            if status == FULL:
                field = event
            break
        if place_in_memory > 0:
            memory[before + _NEXT] = place_in_memory
            before = place_in_memory
        tags[row] = found
        start_ps[row] = begin
        duration_ps[row] = duration
        row += 1
        done += 1
        field = at
    stopped[0] = field
    stopped[1] = status
    stopped[2] = used_texts
    stopped[3] = used_tags
    return done


Lookup = tuple[Array, int, Array, Array, int]
_DENSE_LIMIT = 1 << 20


def lookup(values: dict[int, int], default: int) -> Lookup:
    """An id-to-value map as the decoder takes it: (dense, size, ids, values, size)."""
    small = {k: v for k, v in values.items() if 0 <= k < _DENSE_LIMIT}
    dense = np.full(max(small, default=-1) + 1, default, np.int64)
    dense[list(small)] = list(small.values())
    large = sorted((k, v) for k, v in values.items() if k not in small)
    ids = np.array([k for k, _ in large], np.int64)
    return dense, len(dense), ids, np.array([v for _, v in large], np.int64), len(large)


@dataclass(frozen=True)
class DecodedChunk:
    """Rows that one call decoded; their tags and written-out texts are numbered on their own."""

    first: int
    last: int
    tags: Array
    """a row for each tag: index of the event's metadata, bits of its stats, numbers, texts"""
    spans: Array
    """where each written-out text lies; a tag's text -1 - i is the i-th"""


class _Room(threading.local):
    """What a call writes to, made once for each thread."""

    def __init__(self) -> None:
        self.tag_table = np.empty(2 * MOST_TAGS, np.int32)
        self.text_table = np.empty(2 * MOST_SPANS, np.int32)
        self.memory = np.empty(_WIDTH * MEMORY, np.int64)
        self.spans = np.empty((MOST_SPANS, 2), np.int64)
        self.values = np.empty(0, np.int64)

    def clear(self, width: int) -> None:
        self.tag_table.fill(-1)
        self.text_table.fill(-1)
        self.memory.fill(0)
        if len(self.values) < (MOST_TAGS + 1) * width:
            self.values = np.empty((MOST_TAGS + 1) * width, np.int64)


_ROOM = _Room()


def decode_events(
    data: Array,
    start: int,
    end: int,
    count: int,
    base_ps: int,
    lookups: tuple[Lookup, Lookup, Lookup],
    out: tuple[Array, ...],
    row: int,
    sizes: tuple[int, int, int],
) -> tuple[list[DecodedChunk], int, int]:
    """Decode `count` events into rows from `row` on.

    `lookups` map stat ids to slots, stat ids to texts and event ids to metadata; `out` is
    (tags, start_ps, duration_ps, varying numbers); `sizes` says how many numbers vary, how many
    belong to the tag, and how many texts there are. Returns (parts, offset, status).
    """
    maps = [part for one in lookups for part in one]
    varying, shared, texts = sizes
    width = 2 + shared + texts
    parts = []
    stopped = np.array([start, OK, 0, 0])
    while count:
        _ROOM.clear(width)
        done = _decode(
            data, int(stopped[0]), end, count, base_ps, *maps, *out, len(out[0]), row,
            varying, shared, width, _ROOM.values, _ROOM.tag_table, _ROOM.memory,
            _ROOM.text_table, _ROOM.spans, stopped,
        )  # fmt: skip
        _, status, used_texts, used_tags = stopped.tolist()
        tags = _ROOM.values[: used_tags * width].reshape(used_tags, width).copy()
        parts.append(DecodedChunk(row, row + done, tags, _ROOM.spans[:used_texts].copy()))
        if status not in (OK, FULL) or (status == FULL and not done):
            return parts, int(stopped[0]), status
        row, count = row + done, count - done
    return parts, int(stopped[0]), OK
