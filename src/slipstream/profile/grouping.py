"""Group-bys over event columns in native code: one pass each, no sorting.

Native code checks every number of a group before it uses it as an index, and returns -1 if there is
no such group: an IndexError here.
"""

from __future__ import annotations

import numpy as np

from slipstream.native import inner, native
from slipstream.profile.events import Array, Table


@inner
def _slot_of(a, b, size):  # type: ignore[no-untyped-def]
    key = np.uint64(a) * np.uint64(0x9E3779B97F4A7C15) ^ np.uint64(b)
    key *= np.uint64(0xFF51AFD7ED558CCD)
    return np.int64(key >> np.uint64(32)) & (size - 1)


def _group(a, b, rows, groups, firsts, table, size):  # type: ignore[no-untyped-def]
    """Number of groups, or -1 if there are more than half the table's size."""
    used = 0
    group = np.int64(-1)
    for row in range(rows):
        # Neighbours mostly belong to one group, and comparing is cheaper than hashing.
        if row and a[row] == a[row - 1] and b[row] == b[row - 1]:
            groups[row] = group
            continue
        slot = _slot_of(a[row], b[row], size)
        while table[slot] >= 0:
            known = firsts[table[slot]]
            if a[known] == a[row] and b[known] == b[row]:
                break
            slot = (slot + 1) & (size - 1)
        if table[slot] < 0:
            if 2 * used >= size:
                return -1
            table[slot] = used
            firsts[used] = row
            used += 1
        group = np.int64(table[slot])
        groups[row] = group
    return used


@native("i64(i32*, i64, i32*, i64*, i32*, i64)")
def _group_one(b, rows, groups, firsts, table, size):  # type: ignore[no-untyped-def]
    """Number of groups of a single column of small numbers, or -1 if they are not small."""
    used = 0
    for row in range(rows):
        value = b[row]
        if value < 0 or value >= size:
            return -1
        group = table[value]
        if group < 0:
            group = used
            table[value] = used
            firsts[used] = row
            used += 1
        groups[row] = group
    return used


_group_wide = native("i64(i64*, i32*, i64, i32*, i64*, i32*, i64)")(_group)
_group_narrow = native("i64(i32*, i32*, i64, i32*, i64*, i32*, i64)")(_group)


def group_pairs(a: Array, b: Array) -> tuple[Array, Array]:
    """(group of each row, first row of each group), with groups numbered in order of appearance."""
    group = _group_narrow if a.dtype == np.int32 else _group_wide
    a = np.ascontiguousarray(a, np.int32 if a.dtype == np.int32 else np.int64)
    b = np.ascontiguousarray(b, np.int32)
    groups = np.empty(len(a), np.int32)
    size = 1 << 16
    if len(a) and (a == a[0]).all():
        firsts, table = np.empty(size, np.int64), np.full(size, -1, np.int32)
        used = _group_one(b, len(b), groups, firsts, table, size)
        if used >= 0:
            return groups, firsts[:used]
    size = 4096
    while True:
        firsts = np.empty(size // 2 + 1, np.int64)
        table = np.full(size, -1, np.int32)
        used = group(a, b, len(a), groups, firsts, table, size)
        if used >= 0:
            return groups, firsts[:used]
        size *= 8


@inner
def _is_outside(index, size):  # type: ignore[no-untyped-def]
    return np.uint64(np.int64(index)) >= np.uint64(size)  # a negative number is a huge one


def _check(status: int, groups: Array, count: int) -> None:
    """Raise what native code reported."""
    if status < 0:
        wrong = groups[(groups < 0) | (groups >= count)]
        raise IndexError(f"there is no group {wrong[0]}; there are {count}")


@native("i64(i32*, i64, i64*, i64)")
def _firsts(tags, rows, out, count):  # type: ignore[no-untyped-def]
    """Runs backwards, so that the first row of a tag is written last."""
    for row in range(rows - 1, -1, -1):
        if _is_outside(tags[row], count):
            return -1
        out[tags[row]] = row
    return 0


def first_rows(tags: Array, count: int) -> Array:
    """The first row of each of `count` tags; -1 for those without rows."""
    out = np.full(count, -1, np.int64)
    _check(_firsts(np.ascontiguousarray(tags), len(tags), out, count), tags, count)
    return out


def group_columns(table: Table, a: str, b: str) -> tuple[Array, Array]:
    """`group_pairs` of two columns of a table; done per tag if its tags hold both."""
    if not table.is_tagged(a, b) or table.tags is None:
        return group_pairs(table[a], table[b])
    firsts = table.tags.firsts
    order = np.argsort(firsts, kind="stable")
    order = order[np.searchsorted(firsts[order], 0) :]
    groups, heads = group_pairs(table.tagged(a)[order], table.tagged(b)[order])
    of_tag = np.zeros(len(firsts), np.int32)
    of_tag[order] = groups
    return np.take(of_tag, table.tags.of), firsts[order[heads]]


def group_labels(table: Table, rows: Array | None = None) -> tuple[Array, Array]:
    """(group of each row, first row of each group), by instruction, else by kernel."""
    tags = table.tags
    if tags is None or not table.is_tagged("program", "instruction", "name"):
        every = rows if rows is not None else slice(None)
        cells = (table[column][every] for column in ("program", "instruction", "name"))
        return _labelled(*cells)
    cells = (table.tagged(column) for column in ("program", "instruction", "name"))
    of_tag, _ = _labelled(*cells)
    groups = np.take(of_tag, tags.of if rows is None else tags.of[rows])
    # Renumbered in order of appearance in the rows.
    return group_pairs(np.zeros(len(groups), np.int32), groups)


def _labelled(program: Array, instruction: Array, name: Array) -> tuple[Array, Array]:
    label = instruction if instruction.all() else np.where(instruction, instruction, -name)
    return group_pairs(program, label)


@native("i64(i32*, i64*, i64*, i64*, i64, i64*, i64*, i64*, i64*, i64*, i64)")
def _spans(groups, starts, durations, launches, rows, first, last, launch, size, busy, count):  # type: ignore[no-untyped-def]
    for row in range(rows):
        group = groups[row]
        if _is_outside(group, count):
            return -1
        first[group] = min(first[group], starts[row])
        last[group] = max(last[group], starts[row] + durations[row])
        launch[group] = min(launch[group], launches[row])
        size[group] += 1
        busy[group] += durations[row]
    return 0


def group_spans(
    groups: Array, starts: Array, durations: Array, launches: Array, count: int
) -> tuple[Array, Array, Array, Array, Array]:
    """(first start, last end, first launch, number of events, their total time) of each group."""
    most, least = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    first, launch = np.full(count, most), np.full(count, most)
    last, size, busy = np.full(count, least), np.zeros(count, np.int64), np.zeros(count, np.int64)
    columns = (np.ascontiguousarray(c) for c in (groups, starts, durations, launches))
    status = _spans(*columns, len(groups), first, last, launch, size, busy, count)
    _check(status, groups, count)
    return first, last, launch, size, busy


@native("i64(i32*, i64*, i64, i64*, i64)")
def _sums(groups, values, rows, out, count):  # type: ignore[no-untyped-def]
    for row in range(rows):
        if _is_outside(groups[row], count):
            return -1
        out[groups[row]] += values[row]
    return 0


def group_sums(groups: Array, values: Array, count: int) -> Array:
    """The sum of each group's values, as integers."""
    out = np.zeros(count, np.int64)
    columns = (np.ascontiguousarray(groups), np.ascontiguousarray(values))
    _check(_sums(*columns, len(groups), out, count), groups, count)
    return out


@native("i64(i32*, i32*, i64*, i64, i64, i64, i64*)")
def _tabled(groups, columns, values, rows, height, width, out):  # type: ignore[no-untyped-def]
    for row in range(rows):
        if _is_outside(groups[row], height) or _is_outside(columns[row], width):
            return -1
        out[groups[row] * width + columns[row]] += values[row]
    return 0


def group_table(groups: Array, columns: Array, values: Array, shape: tuple[int, int]) -> Array:
    """Sums of values by group and column."""
    out = np.zeros(shape, np.int64)
    cells = (np.ascontiguousarray(one, np.int32) for one in (groups, columns))
    if _tabled(*cells, np.ascontiguousarray(values), len(groups), *shape, out) < 0:
        raise IndexError(f"a group or column is outside of the table of {shape[0]} by {shape[1]}")
    return out


@native("i64(i32*, i64, i64*, i64)")
def _counts(groups, rows, out, count):  # type: ignore[no-untyped-def]
    for row in range(rows):
        if _is_outside(groups[row], count):
            return -1
        out[groups[row]] += 1
    return 0


def group_counts(groups: Array, count: int) -> Array:
    """Number of rows of each group: `numpy.bincount` without its conversion to int64."""
    out = np.zeros(count, np.int64)
    _check(_counts(np.ascontiguousarray(groups), len(groups), out, count), groups, count)
    return out


@native("i64(i64*, i64, i64*, i64, i32*, i32*)")
def _place(keys, rows, bounds, count, owners, out):  # type: ignore[no-untyped-def]
    at = 0
    for row in range(rows):
        # Keys are mostly ascending, so the next place is this one or the one after.
        while at > 0 and keys[row] < bounds[at - 1]:
            at -= 1
        while at < count and keys[row] >= bounds[at]:
            at += 1
        out[row] = owners[at]
    return 0


def owners_at(keys: Array, bounds: Array, owners: Array) -> Array:
    """The owner of each key: `owners[n]` if n of the ascending bounds are at or below it.

    Fast if keys mostly ascend.
    """
    out = np.empty(len(keys), np.int32)
    keys, bounds = np.ascontiguousarray(keys, np.int64), np.ascontiguousarray(bounds, np.int64)
    _place(keys, len(keys), bounds, len(bounds), np.ascontiguousarray(owners, np.int32), out)
    return out


def places(keys: Array, bounds: Array) -> Array:
    """How many of the ascending bounds are at or below each key; fast if keys mostly ascend."""
    return owners_at(keys, bounds, np.arange(len(bounds) + 1, dtype=np.int32))


@native("i64(i32*, i64, i64*, i64, i64*)")
def _chosen(labels, rows, ranks, size, out):  # type: ignore[no-untyped-def]
    count = 0
    for row in range(rows):
        if _is_outside(labels[row], size):
            return -1
        if ranks[labels[row]] >= 0:
            out[count] = row
            count += 1
    return count


def rows_ranked(labels: Array, ranks: Array) -> Array:
    """Rows whose label has a rank (not negative)."""
    out = np.empty(len(labels), np.int64)
    count = _chosen(np.ascontiguousarray(labels), len(labels), ranks, len(ranks), out)
    _check(count, labels, len(ranks))
    return out[:count]


@native("i64(i64*, i32*, i64*, i64*, i64, i64*, i64*, i64*, i64*)")
def _innermost(order, lanes, starts, durations, rows, stack, owner, opens, closes):  # type: ignore[no-untyped-def]
    """Scan each lane; of the events that run, the last one that started is the innermost."""
    count = 0
    depth = 0
    at = np.int64(0)
    for i in range(rows + 1):
        row = order[min(i, rows - 1)]
        # The innermost event runs until the next one starts, or until its own end.
        is_end = i == rows or (depth > 0 and lanes[stack[0]] != lanes[row])
        while depth:
            top = stack[depth - 1]
            end = starts[top] + durations[top]
            goes_on = not is_end and end > starts[row]
            until = starts[row] if goes_on else end
            if until > at:
                owner[count] = top
                opens[count] = at
                closes[count] = until
                at = until
                count += 1
            if goes_on:
                break
            depth -= 1
        stack[depth] = row
        depth += 1
        at = starts[row]
    return count


def innermost(lanes: Array, starts: Array, durations: Array) -> tuple[Array, Array, Array]:
    """(row, start, end) of the times in which an event is the innermost, lane by lane."""
    order = np.lexsort((-durations, starts, lanes))
    columns = (np.ascontiguousarray(c) for c in (lanes, starts, durations))
    # The stack is at most as deep as there are events, and each splits at most one other.
    stack = np.empty(len(order) + 1, np.int64)
    owner, opens, closes = np.empty((3, 2 * len(order)), np.int64)
    count = 0
    if len(order):
        count = _innermost(order, *columns, len(order), stack, owner, opens, closes)
    return owner[:count], opens[:count], closes[:count]


def self_times(lanes: Array, starts: Array, durations: Array) -> Array:
    """Self time of each event: its duration without the events nested in it."""
    rows, opens, closes = innermost(lanes, starts, durations)
    own = np.zeros(len(lanes), np.int64)
    np.add.at(own, rows, closes - opens)
    return own
