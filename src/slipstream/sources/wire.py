"""The protobuf wire format, walked by native code: no message objects, no copies.

A message is a sequence of fields, each a varint tag (`number << 3 | type`) and a value:

    type 0  varint            type 2  length, then that many bytes
    type 1  eight bytes       type 5  four bytes

Native code can't raise: it returns a status and an offset, and the caller, who knows the file and
the message, raises the error.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from slipstream.native import inner, native, trailing_zeros, word_at

if TYPE_CHECKING:
    import numpy as np

OK, TRUNCATED, BAD_VARINT, BAD_TYPE, FULL, BAD_NUMBER, CROWDED = 0, 1, 2, 3, 4, 5, 6

PROBLEMS = {
    TRUNCATED: "a field that ends inside its message",
    BAD_VARINT: "a varint of at most ten bytes",
    BAD_TYPE: "a field of wire type 0, 1, 2 or 5",
    FULL: "fewer different texts in one event",
    BAD_NUMBER: "a field with a number above 0",
    CROWDED: "fewer fields, of more bytes each",
}
"""What was expected where decoding stopped, by status"""

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


@inner
def read_varint(data, at, end):  # type: ignore[no-untyped-def]
    """(value, next offset, status); values are in two's complement, as int64 fields need."""
    if at >= end:
        return 0, at, TRUNCATED
    byte = np.int64(data[at])
    at += 1
    if byte < 0x80:  # most varints are one byte long
        return byte, at, OK
    value = byte & 0x7F
    shift = 7
    while at < end:
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at, OK
        shift += 7
        if shift > 63:
            return 0, at, BAD_VARINT
    return 0, at, TRUNCATED


@inner
def read_long_varint(data, at, end):  # type: ignore[no-untyped-def]
    """`read_varint` for numbers that are mostly long: eight bytes at once, without a loop."""
    if end - at < 8:
        return read_varint(data, at, end)
    word = word_at(data, at)
    last = ~word & np.uint64(0x8080808080808080)
    if last == 0:
        return read_varint(data, at, end)
    # The lowest clear top bit ends the number; the bytes above belong to the next field.
    last &= ~last + np.uint64(1)
    word &= (last - np.uint64(1)) & np.uint64(0x7F7F7F7F7F7F7F7F)
    # Groups of seven bits move together: pairs, then fours, then all eight.
    low, high = np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00)
    word = word & low | (word & high) >> np.uint64(1)
    low, high = np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000)
    word = word & low | (word & high) >> np.uint64(2)
    low, high = np.uint64(0x000000000FFFFFFF), np.uint64(0x0FFFFFFF00000000)
    word = word & low | (word & high) >> np.uint64(4)
    return np.int64(word), at + (trailing_zeros(last) >> 3) + 1, OK


@inner
def read_value(data, at, end, wire_type):  # type: ignore[no-untyped-def]
    """(value or length, payload offset, next offset, status) of the field whose tag was read."""
    if wire_type == VARINT:
        value, after, status = read_varint(data, at, end)
        return value, at, after, status
    if wire_type == BYTES:
        value, payload, status = read_varint(data, at, end)
        if status == OK and (value < 0 or value > end - payload):
            status = TRUNCATED
        return value, payload, payload + value, status
    size = 8 if wire_type == FIXED64 else 4
    if wire_type != FIXED64 and wire_type != FIXED32:
        return 0, at, at, BAD_TYPE
    return 0, at, at + size, OK if size <= end - at else TRUNCATED


@native("i64(u8*, i64*, i64, i64, i64*, i64, i64*)")
def _fields(data, places, messages, wanted, rows, most, stopped):  # type: ignore[no-untyped-def]
    """Decode fields of messages into `rows`, `most` at a time; `wanted` has a bit for each number.

    `stopped` holds (message, offset, status): where to start, and on return where it stopped.
    """
    count = 0
    index = stopped[0]
    at = stopped[1]
    status = OK
    while status == OK and count < most:
        end = places[2 * index] + places[2 * index + 1]
        if at >= end:
            index += 1
            if index == messages:
                break
            at = places[2 * index]
            continue
        tag, after, status = read_varint(data, at, end)
        if status != OK:
            break
        number = tag >> 3
        if number == 0:
            status = BAD_NUMBER
            break
        value, payload, after, status = read_value(data, after, end, tag & 7)
        if status != OK:
            break
        if number > 0 and number < 63 and (wanted >> number) & 1:
            rows[5 * count] = index
            rows[5 * count + 1] = number
            rows[5 * count + 2] = tag & 7
            rows[5 * count + 3] = value
            rows[5 * count + 4] = payload
            count += 1
        at = after
    stopped[0] = index
    stopped[1] = at
    stopped[2] = status
    return count


Places = list[tuple[int, int]]
"""messages as (offset, length)"""


ALL = (1 << 63) - 1
FEW = 10_000
"""fields that may be as short as they like"""


def numbers(*wanted: int) -> int:
    """The bits of field numbers, as `fields_of` takes them."""
    return sum(1 << number for number in wanted)


def fields_of(
    data: Any, places: Places, wanted: int = ALL, least_bytes: int = 1
) -> tuple[list[tuple[int, ...]], int, int]:
    """Fields of messages: rows of (message, number, wire type, value or length, payload).

    Returns (rows, offset, status); if the status is not OK, the offset is where it stopped. A row
    takes a hundred times the bytes of a short field, so a message of fields that are shorter than
    `least_bytes` on the average is refused.
    """
    found: list[tuple[int, ...]] = []
    if not places:
        return found, 0, OK
    flat = (ctypes.c_int64 * (2 * len(places)))(*(number for place in places for number in place))
    size = sum(length for _, length in places)
    # A field takes at least two bytes.
    most = min(4096, size // 2 + 1)
    rows = (ctypes.c_int64 * (5 * most))()
    stopped = (ctypes.c_int64 * 3)(0, places[0][0], OK)
    while stopped[0] < len(places) and stopped[2] == OK:
        count = _fields(data, flat, len(places), wanted, rows, most, stopped)
        numbers = iter(rows[: 5 * count])
        found += zip(numbers, numbers, numbers, numbers, numbers, strict=True)
        if len(found) > FEW + size // least_bytes:
            return found, stopped[1], CROWDED
    return found, stopped[1], stopped[2]


def fields(
    data: Any, start: int, end: int, wanted: int = ALL, least_bytes: int = 1
) -> tuple[list[tuple[int, ...]], int, int]:
    """`fields_of` one message, without the index of the message."""
    rows, at, status = fields_of(data, [(start, end - start)], wanted, least_bytes)
    return [row[1:] for row in rows], at, status


def text(data: Any, payload: int, length: int) -> str:
    """A string field; invalid UTF-8 is replaced rather than refused."""
    return bytes(data[payload : payload + length]).decode("utf-8", "replace")
