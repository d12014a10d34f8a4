"""SQLite's table pages into columns, without SQL: a native walk over the mapped file.

    file      pages of equal size; the first one begins with a header of 100 bytes
    interior  5, …, cells of (child page, key), right-most child            leads to leaves
    leaf      13, …, cells of (payload size, rowid, header, values)         one cell a row
    header    its size, then one type a column: 1–6 integers, 8 and 9 are 0 and 1, 13+ text

SQLite's Python module makes an object for every value; here a row takes tens of nanoseconds. What
this reader can't read (a write-ahead log, values on overflow pages) it reports, and SQL reads it.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.events import Array

MAGIC = b"SQLite format 3\x00"
IGNORED, MIXED = -1, -2
"""instead of a slot: the column is skipped, or part of the row's digest"""
TEXT = 1 << 16
"""added to a text column's slot: the slot gets the text's offset, the next one its length"""

_INTERIOR, _LEAF = 5, 13
_DAMAGED, _ON_OVERFLOW_PAGE, _NOT_AN_INTEGER = -1, -2, -3
_CHUNK_LEAVES = 4096
_DEEPEST = 60


@dataclass(frozen=True)
class SqlitePages:
    """A mapped SQLite file."""

    data: Array
    page_size: int
    usable: int

    @classmethod
    def of(cls, data: Array) -> SqlitePages | None:
        """The pages of a file; None if this reader can't read them."""
        if len(data) < 512 or data[:16].tobytes() != MAGIC:
            return None
        size = int.from_bytes(data[16:18].tobytes(), "big")
        size = 65536 if size == 1 else size
        encoding = int.from_bytes(data[56:60].tobytes(), "big")
        if encoding != 1 or size < 512 or size & (size - 1):
            return None
        return cls(data, size, size - int(data[20]))


@inner
def _signed(data, at, size):  # type: ignore[no-untyped-def]
    """A big-endian integer in two's complement."""
    value = np.int64(data[at])
    if value >= 128:
        value -= 256
    for i in range(1, size):
        value = (value << 8) | np.int64(data[at + i])
    return value


@inner
def _unsigned(data, at, size):  # type: ignore[no-untyped-def]
    value = np.int64(0)
    for i in range(size):
        value = (value << 8) | np.int64(data[at + i])
    return value


@inner
def _varint(data, at, limit):  # type: ignore[no-untyped-def]
    """(value, next offset): seven bits a byte, the highest first; a ninth byte has eight."""
    value = np.int64(0)
    for i in range(9):
        if at + i >= limit:
            return np.int64(-1), limit
        byte = np.int64(data[at + i])
        if i == 8:
            return (value << 8) | byte, at + 9
        value = (value << 7) | (byte & 127)
        if byte < 128:
            return value, at + i + 1
    return value, limit


@inner
def _size_of(kind):  # type: ignore[no-untyped-def]
    """Size of a value in bytes, by its type."""
    if kind >= 12:
        return (kind - 12) >> 1
    if kind <= 4:
        return kind
    if kind == 5:
        return np.int64(6)
    return np.int64(8) if kind <= 7 else np.int64(0)


@inner
def _child(data, at, head, cell, cells, page_size):  # type: ignore[no-untyped-def]
    """The page that a cell of an interior page leads to; the right-most one has no cell."""
    if cell == cells:
        return _unsigned(data, head + 8, 4)
    place = _unsigned(data, head + 12 + 2 * cell, 2)
    return _unsigned(data, at + place, 4) if place + 4 <= page_size else np.int64(0)


@native("i64(u8*, i64, i64, i64, i64*, i64*, i64*)")
def _leaves(data, size, page_size, root, leaves, rows, stack):  # type: ignore[no-untyped-def]
    """Number of leaves; `leaves` gets their offsets in order, `rows` the number of rows of each."""
    count = 0
    depth = 1
    pages = size // page_size
    stack[0] = root
    stack[1] = 0
    while depth:
        page, cell = stack[2 * depth - 2], stack[2 * depth - 1]
        if page < 1 or page > pages or depth == _DEEPEST or count >= pages:
            return _DAMAGED
        at = (page - 1) * page_size
        head = at + 100 if page == 1 else at
        cells = _unsigned(data, head + 3, 2)
        if (data[head] != _LEAF and data[head] != _INTERIOR) or 112 + 2 * cells > page_size:
            return _DAMAGED
        if data[head] == _LEAF:
            leaves[count] = at
            rows[count] = cells
            count += 1
            depth -= 1
        elif cell > cells:
            depth -= 1
        else:
            stack[2 * depth - 1] = cell + 1
            stack[2 * depth] = _child(data, at, head, cell, cells, page_size)
            stack[2 * depth + 1] = 0
            depth += 1
    return count


@inner
def _local_end(at, payload, usable):  # type: ignore[no-untyped-def]
    """Where a row's payload ends on its own page; the rest is on overflow pages."""
    if payload <= usable - 35:
        return at + payload
    least = (usable - 12) * 32 // 255 - 23
    kept = least + (payload - least) % (usable - 4)
    return at + (kept if kept <= usable - 35 else least)


@inner
def _value(data, kind, at, null):  # type: ignore[no-untyped-def]
    """An integer, or `null` for NULL."""
    if kind == 0:
        return null
    if kind <= 6:
        return _signed(data, at, _size_of(kind))
    return np.int64(1) if kind == 9 else np.int64(0)


@inner
def _mixed(digest, value):  # type: ignore[no-untyped-def]
    digest = (digest ^ np.uint64(value)) * np.uint64(0x9E3779B97F4A7C15)
    return digest ^ (digest >> np.uint64(29))


@inner
def _read_row(data, at, usable, limit, slots, width, nulls, out, rows, row):  # type: ignore[no-untyped-def]
    """Decode one cell of a leaf into column `row` of `out`; returns a status below 0 on failure.

    at                                     value_at
    │payload size│rowid│header size│types…│values…│
    """
    payload, at = _varint(data, at, limit)
    rowid, at = _varint(data, at, limit)
    header, type_at = _varint(data, at, limit)
    if payload < 0 or header < 0:
        return _DAMAGED
    end = _local_end(at, payload, usable)
    if end > limit:
        return _DAMAGED
    if header > end - at:
        return _ON_OVERFLOW_PAGE
    types_end = value_at = at + header
    digest = np.uint64(0)
    for column in range(width):
        kind = np.int64(0)  # columns added after the row was written are NULL
        if type_at < types_end:
            kind, type_at = _varint(data, type_at, limit)
        size = _size_of(kind)
        if size < 0 or size > payload:
            return _DAMAGED
        slot = slots[column]
        if size > end - value_at:
            if slot != IGNORED:
                return _ON_OVERFLOW_PAGE
            size = end + 1 - value_at  # so are all later columns; their sizes must not add up
        if slot >= TEXT:
            is_text = kind >= 13 and kind & 1
            out[(slot - TEXT) * rows + row] = value_at
            out[(slot - TEXT + 1) * rows + row] = size if is_text else -1
        elif slot != IGNORED and (kind == 7 or kind >= 10):
            return _NOT_AN_INTEGER  # SQL finds it again, and says where it is
        elif slot == MIXED:
            digest = _mixed(digest, _value(data, kind, value_at, nulls[column]))
        elif slot != IGNORED:
            out[slot * rows + row] = _value(data, kind, value_at, nulls[column])
        value_at += size
    out[row] = rowid
    out[rows + row] = np.int64(digest)
    return 0


@native("i64(u8*, i64, i64, i64*, i64*, i64, i64, i64*, i64, i64*, i64*, i64)")
def _decode(  # type: ignore[no-untyped-def]
    data, page_size, usable, leaves, firsts, begin, end, slots, width, nulls, out, rows
):
    """Rows of leaves `begin` to `end`; slot 0 gets the rowid and slot 1 the digest."""
    for leaf in range(begin, end):
        page = leaves[leaf]
        head = page + 100 if page == 0 else page
        row = firsts[leaf]
        limit = page + page_size
        for cell in range(firsts[leaf + 1] - row):
            at = page + _unsigned(data, head + 8 + 2 * cell, 2)
            status = _read_row(data, at, usable, limit, slots, width, nulls, out, rows, row + cell)
            if status < 0:
                return status
    return 0


def read_rows(
    pages: SqlitePages, root: int, slots: Array, nulls: Array, count: int
) -> Array | None:
    """A table's rows as `count` columns: rowid, digest, then the caller's slots.

    `slots` says for each column of the table where it goes, `nulls` what NULL becomes there.
    None if the rows can't be read without SQL.
    """
    data, page_size = pages.data, pages.page_size
    most = len(data) // page_size
    leaves, sizes = np.empty((2, most), np.int64)
    found = _leaves(
        data, len(data), page_size, root, leaves, sizes, np.empty(2 * _DEEPEST + 2, np.int64)
    )
    if found < 0:
        return None
    firsts = np.concatenate(([0], np.cumsum(sizes[:found])))
    rows = int(firsts[-1])
    out = np.empty((count, rows), np.int64)
    wanted = np.flatnonzero(slots != IGNORED)
    width = int(wanted[-1]) + 1 if len(wanted) else 0

    def decode(begin: int) -> int:
        end = min(begin + _CHUNK_LEAVES, found)
        places = (leaves, firsts, begin, end, slots, width, nulls, out.reshape(-1), rows)
        status: int = _decode(data, page_size, pages.usable, *places)
        return status

    _decode.prepare()
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        statuses = list(pool.map(decode, range(0, found, _CHUNK_LEAVES)))
    return None if any(statuses) else out


@native("i64(u8*, i64*, i64*, i64, i32*, i64*, i32*, i64)")
def _intern(data, places, lengths, rows, groups, firsts, table, size):  # type: ignore[no-untyped-def]
    """Number of distinct texts, or -1 when there are more than half the table's size."""
    used = 0
    for row in range(rows):
        length = lengths[row]
        if length < 0:
            groups[row] = -1
            continue
        at = places[row]
        digest = np.uint64(length)
        for i in range(length):
            digest = (digest ^ np.uint64(data[at + i])) * np.uint64(0x100000001B3)
        slot = np.int64((digest ^ (digest >> np.uint64(29))) & np.uint64(size - 1))
        while table[slot] >= 0:
            known = firsts[table[slot]]
            same = lengths[known] == length
            i = 0
            while same and i < length:
                same = data[places[known] + i] == data[at + i]
                i += 1
            if same:
                break
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            if 2 * used >= size:
                return -1
            table[slot] = used
            firsts[used] = row
            used += 1
        groups[row] = table[slot]
    return used


def intern(data: Array, places: Array, lengths: Array) -> tuple[Array, list[str]]:
    """(index of each row's text, -1 for none; the distinct texts)."""
    groups = np.empty(len(places), np.int32)
    size = 1 << 16
    while True:
        firsts, table = np.empty(size // 2 + 1, np.int64), np.full(size, -1, np.int32)
        used = _intern(data, places, lengths, len(places), groups, firsts, table, size)
        if used >= 0:
            break
        size *= 8
    spans = [(int(places[row]), int(lengths[row])) for row in firsts[:used].tolist()]
    return groups, [data[a : a + n].tobytes().decode("utf-8", "replace") for a, n in spans]
