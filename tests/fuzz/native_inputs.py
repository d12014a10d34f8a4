"""Inputs for every native function, through the Python functions that call it.

Each target makes one input from a source of chance, and runs what reads it. What comes from files
may be anything: bytes, times, sizes, ids. What our own code numbers (lanes, kinds, tags) is in its
range, unless a function promises to check it.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np

from slipstream.errors import SlipstreamError
from slipstream.machines.links import LINKS
from slipstream.outputs.perfetto.packets import Packets
from slipstream.outputs.perfetto.track_layout import lay_out
from slipstream.outputs.wire import fixed_tag
from slipstream.profile import grouping
from slipstream.profile.attribution import executions
from slipstream.profile.attribution.alignment import Aligner, EventSequence
from slipstream.profile.attribution.launch_sequence import Launch, LaunchSequence
from slipstream.profile.events import Array
from slipstream.profile.timeline import scans
from slipstream.profile.timeline.concurrency import (
    Grouped,
    Serialized,
    longest_overlaps,
    serialize,
)
from slipstream.serve import range_summary, search
from slipstream.serve import tracks as serve_tracks
from slipstream.serve.tiles import pyramid, tiles
from slipstream.serve.tracks import Tracks
from slipstream.simulate import clock
from slipstream.simulate.contention import Contention
from slipstream.simulate.overheads import Overheads
from slipstream.simulate.streams import ENGINES
from slipstream.simulate.task_graph import DONE, KERNEL, READ, START, Node, TaskGraph
from slipstream.simulate.window_clock import WindowClock
from slipstream.sources import wire
from slipstream.sources.nsys import ranges, sqlite_pages
from slipstream.sources.xplane import events, lines

Target = Callable[[Random], object]
EDGES = (
    0, 1, -1, 2, 63, 64, 127, 128, 255, 4096, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**53,
    2**62, 2**62 + 1, -(2**62), 2**63 - 1, -(2**63), -(2**63) + 1,
)  # fmt: skip


# Chance


def _stock() -> Array:
    """Numbers of 64 bits: edges, small ones, and any. Inputs take runs of them."""
    chance = np.random.default_rng(0)
    found = chance.integers(-(2**63), 2**63 - 1, 1 << 16)
    kind = chance.random(len(found))
    found[kind < 0.8] = chance.integers(0, 100, len(found))[kind < 0.8]
    found[kind < 0.3] = chance.choice(np.array(EDGES), len(found))[kind < 0.3]
    return found


_STOCK = _stock()
_RAW = np.random.default_rng(1).integers(0, 2**31, 1 << 16)
SIZES = (0, 1, 1, 2, 3, 5, 8, 21)


def number(chance: Random) -> int:
    return int(_STOCK[chance.getrandbits(16)])


def numbers(chance: Random, size: int) -> Array:
    at = min(chance.getrandbits(16), len(_STOCK) - size)
    return _STOCK[at : at + size].copy()


def indices(chance: Random, size: int, count: int, dtype: type = np.int32) -> Array:
    at = min(chance.getrandbits(16), len(_RAW) - size)
    return (_RAW[at : at + size] % count).astype(dtype)


def size(chance: Random) -> int:
    return SIZES[chance.getrandbits(3)]


def damaged(data: bytes, chance: Random) -> bytes:
    """Flip, cut, repeat, insert or overwrite some bytes."""
    made = bytearray(data)
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        at = chance.randrange(len(made) + 1)
        kind = chance.randrange(6)
        if kind < 2 and at < len(made):
            made[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, made[at] ^ 1 << chance.randrange(8)))
        elif kind == 2:
            del made[at:]
        elif kind == 3:
            made[at:at] = b"\xff" * chance.randrange(11)
        elif kind == 4:
            made[at : at + chance.randrange(16)] = b""
        else:
            made[at:at] = made[at : at + chance.randrange(1, 40)]
    return bytes(made)


def as_bytes(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)


# Sources: XPlane


def varint(value: int) -> bytes:
    value %= 1 << 64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def field(tag: int, wire_type: int, value: int | bytes) -> bytes:
    head = varint(tag << 3 | wire_type)
    return head + (varint(value) if isinstance(value, int) else varint(len(value)) + value)


def _stat(chance: Random) -> bytes:
    made = field(1, 0, chance.choice((1, 2, 3, 4, 5, 6, 7, 8, 9, 130, 300, 2**21, number(chance))))
    kind = chance.choice((3, 4, 4, 5, 5, 6, 7, 7, 2))
    if kind in (5, 6):
        return made + field(kind, 2, chance.choice((b"", b"dot.1", b"x" * 30)))
    if kind == 2:
        return made + b"\x11" + chance.randbytes(8)
    return made + field(kind, 0, chance.choice((1, 3, 9, 130, number(chance))))


def _event(chance: Random) -> bytes:
    made = field(1, 0, chance.choice((1, 2, 3, 200, number(chance))))
    made += field(2, 0, number(chance)) + field(3, 0, number(chance))
    return field(4, 2, made + b"".join(field(4, 2, _stat(chance)) for _ in range(size(chance))))


@cache
def _lines() -> tuple[bytes, ...]:
    """Lines as a profiler writes them: an id, a name, a time, and many events that are alike."""
    chance = Random(1)
    found = []
    for _ in range(60):
        alike = [_event(chance) for _ in range(4)]
        made = field(1, 0, 7) + field(2, 2, b"Stream #7") + field(3, 0, number(chance))
        made += b"".join(chance.choice(alike) for _ in range(chance.randrange(1, 12)))
        found.append(made + field(11, 2, b"compute"))
    return tuple(found)


@cache
def _wanted() -> events.Wanted:
    slots = {1: 0, 2: 1, 3: 2, 4: 3, 5: 16, 6: 17, 7: events.CONSTANT_SLOT, 130: 18, 2**21: 4}
    refs, kinds = {1: 1, 2: 2, 9: 3, 2**40: 4, -1: 5}, {1: 0, 2: 1, 200: 2, 2**62: 3}
    found = (events.lookup(slots, events.NO_SLOT), events.lookup(refs, 0), events.lookup(kinds, 0))
    return events.Wanted(*found, varying=2, shared=3, texts=3)


def xplane_events(chance: Random) -> object:
    """What lies in a line is found, and then decoded."""
    data = as_bytes(damaged(chance.choice(_lines()), chance))
    every = chance.choice((4, 1 << 18, 1 << 18))
    starts, counts, *_ = lines.scan_line(data, 0, len(data), every)
    out = events.Columns.of(sum(counts), 2)
    row, status = 0, wire.OK
    for start, count in zip(starts, counts, strict=True):
        if status == wire.OK:
            chunk = events.Chunk(0, start, len(data), count, number(chance), row)
            *_, status = events.decode_events(data, chunk, _wanted(), out)
        row += count
    return status


def xplane_lines(chance: Random) -> object:
    """Long lines are searched for, and walked from guessed offsets."""
    planes = b"".join(field(3, 2, chance.choice(_lines())) for _ in range(3))
    data = as_bytes(damaged(field(1, 2, planes), chance))
    places = np.empty(8, np.int64)
    found = lines._find(data, len(data), chance.randrange(200), places, 4)
    at, end = sorted(chance.randrange(len(data) + 1) for _ in range(2))
    return found, lines._guess(data, at, end, chance.randrange(5))


def wire_fields(chance: Random) -> object:
    data = damaged(field(1, 2, chance.choice(_lines())), chance)
    return wire.fields(as_bytes(data), 0, len(data))


# Sources: Nsight Systems


@cache
def _pages() -> tuple[bytes, ...]:
    """Exports in small pages: rows of numbers and texts, on one leaf or on several levels."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for rows in (0, 1, 5, 60):
            path = Path(folder) / f"{rows}.sqlite"
            with closing(sqlite3.connect(path)) as db, db:
                db.execute("PRAGMA page_size = 512")
                db.execute("CREATE TABLE t (a INTEGER, text TEXT, b INTEGER, c INTEGER, d TEXT)")
                for i in range(rows):
                    row = (EDGES[i % len(EDGES)], "x" * (i % 30), None, i, "y" * (i % 7 * 40))
                    db.execute("INSERT INTO t VALUES (?, ?, ?, ?, ?)", row)
            found.append(path.read_bytes())
    return tuple(found)


def _big_endian(value: int) -> bytes:
    """A number as SQLite writes it: the highest seven bits first, all eight of a ninth byte."""
    value %= 1 << 64
    if value >= 1 << 56:
        rest = value >> 8
        return bytes(rest >> 7 * i & 127 | 128 for i in range(7, -1, -1)) + bytes([value & 255])
    count = max(1, -(-value.bit_length() // 7))
    return bytes(value >> 7 * i & 127 | (128 if i else 0) for i in range(count - 1, -1, -1))


def _leaf(chance: Random) -> bytearray:
    """Two pages, of which the second is a leaf with rows of any sizes."""
    data = bytearray(chance.choice(_pages())[:1024])
    rows = chance.randrange(1, 4)
    data[512:520] = bytes([13, 0, 0, 0, rows, 0, 0, 0])
    for row in range(rows):
        few = (1, 9, 13, 20, 2**62, 2**63 - 1, number(chance))
        types = [chance.choice(few) for _ in range(5)]
        payload = chance.choice((60, 477, number(chance), 2**63 - 1 - chance.randrange(600)))
        header = chance.choice((6, 40, 40, number(chance)))
        cell = b"".join(map(_big_endian, (payload, row, header)))
        cell += b"".join(map(_big_endian, types))
        at = chance.choice((30, 30, 80, chance.randrange(30, 512)))
        data[520 + 2 * row : 522 + 2 * row] = at.to_bytes(2, "big")
        data[512 + at :] = (cell + data[512 + at + len(cell) :])[: 512 - at]
    return data


def nsys_rows(chance: Random) -> object:
    data = _leaf(chance) if chance.random() < 0.5 else bytearray(chance.choice(_pages()))
    # Page 2 is the root of the table; sizes and offsets are what is worth changing.
    for _ in range(chance.choice((0, 1, 2, 3))):
        at = chance.randrange(512, len(data)) if chance.random() < 0.8 else 512
        wide = chance.choice((1, 1, 2, 9))
        data[at : at + wide] = chance.choice((b"\xff" * wide, chance.randbytes(wide), b"\0" * wide))
    if chance.random() < 0.1:
        del data[chance.randrange(512, len(data)) :]
    pages = sqlite_pages.SqlitePages.of(as_bytes(bytes(data)))
    if pages is None:
        return None
    ignored = sqlite_pages.IGNORED
    kinds = (ignored, ignored, ignored, sqlite_pages.MIXED, 2, 3, sqlite_pages.TEXT + 4)
    slots = np.array([chance.choice(kinds) for _ in range(5)], np.int64)
    found = sqlite_pages.read_rows(pages, chance.choice((2, 2, 2, 1, 3)), slots, slots, 6)
    if found is None or slots.max() < sqlite_pages.TEXT or chance.random() < 0.9:
        return found
    return sqlite_pages.intern(pages.data, found[4], found[5])


def nsys_launches(chance: Random) -> object:
    calls, work, processes = size(chance), size(chance), chance.randrange(1, 4)
    of = ranges.Launches(indices(chance, calls, processes), numbers(chance, calls), processes)
    return of.find(indices(chance, work, processes), numbers(chance, work))


def nsys_ranges(chance: Random) -> object:
    spans = []
    for count in (size(chance), size(chance)):
        columns = (numbers(chance, count), numbers(chance, count))
        spans.append(ranges.Spans(*columns, indices(chance, count, 3), indices(chance, count, 4)))
    return ranges.enclosing(spans[0], spans[1], (0, 1, 2, 3), 3)


# The profile


def _groups(chance: Random, count: int) -> tuple[Array, int]:
    """Numbers of groups, and how many groups there are; sometimes a number is of none."""
    groups, most = indices(chance, count, 9), 9
    if chance.random() < 0.2 and count:
        groups[chance.randrange(count)] = chance.choice((9, -1, 2**31 - 1, -(2**31)))
    return groups, most


def group_pairs(chance: Random) -> object:
    count = size(chance)
    a = numbers(chance, count) if chance.random() < 0.5 else indices(chance, count, 5)
    if chance.random() < 0.02:
        a[:] = 3
    return grouping.group_pairs(a, numbers(chance, count).astype(np.int32))


def group_by(chance: Random) -> object:
    count = size(chance)
    groups, most = _groups(chance, count)
    kind = chance.randrange(6)
    if kind == 0:
        return grouping.first_rows(groups, most)
    if kind == 1:
        columns = (numbers(chance, count) for _ in range(3))
        return grouping.group_spans(groups, *columns, most)
    if kind == 2:
        return grouping.group_sums(groups, numbers(chance, count), most)
    if kind == 3:
        other, width = _groups(chance, count)
        return grouping.group_table(groups, other, numbers(chance, count), (most, width))
    if kind == 4:
        return grouping.group_counts(groups, most)
    return grouping.rows_ranked(groups, numbers(chance, most))


def group_places(chance: Random) -> object:
    return grouping.places(numbers(chance, size(chance)), np.sort(numbers(chance, size(chance))))


def nesting(chance: Random) -> object:
    count = size(chance)
    return grouping.innermost(
        indices(chance, count, 3), numbers(chance, count), numbers(chance, count)
    )


def _segments(chance: Random) -> tuple[Array, Array, Array]:
    """(starts, durations, kinds); mostly in order of time, as segments are."""
    count = size(chance)
    starts = numbers(chance, count)
    if chance.random() < 0.8:
        starts = np.sort(starts)
    return starts, numbers(chance, count), indices(chance, count, 3, np.uint8)


def timeline(chance: Random) -> object:
    segments = _segments(chance)
    kind = chance.randrange(5)
    if kind == 0:
        windows = (numbers(chance, 5), numbers(chance, 5))
        return scans.covered(scans.union(*segments, chance.randrange(8)), *windows)
    if kind == 1:
        masks = indices(chance, 3, 8, np.int64)
        return scans.covered_until(*segments, masks, np.sort(numbers(chance, size(chance))))
    if kind == 2:
        return scans.hidden(*segments, np.array([0, 1, 5], np.int64))
    if kind == 3:
        windows = (np.sort(numbers(chance, 3)), numbers(chance, 3))
        return scans.gaps(segments[0], segments[1], *windows)
    return serialize(*segments, chance.randrange(8))


def concurrency(chance: Random) -> object:
    rows, kernels = size(chance), size(chance)
    bounds = np.array([0, chance.randrange(kernels + 1), kernels], np.int64)
    columns = (numbers(chance, rows), numbers(chance, rows), indices(chance, rows, 2))
    compute = (numbers(chance, kernels), numbers(chance, kernels), indices(chance, kernels, 6))
    return longest_overlaps(
        Grouped(*columns, indices(chance, rows, 7)), Serialized(*compute, bounds)
    )


def execution_numbers(chance: Random) -> object:
    count = size(chance)
    graphs = indices(chance, count, 2).astype(np.bool_)
    out, last = np.empty(count, np.int32), np.full(2, -1, np.int64)
    columns = (numbers(chance, count), graphs, numbers(chance, count))
    return executions._count(*columns, count, chance.randrange(2), last, out)


def alignment(chance: Random) -> object:
    length, count = size(chance), size(chance)
    launches = tuple(
        Launch(
            str(chance.randrange(4)), str(chance.randrange(4)),
            *(chance.random() < 0.4 for _ in range(4)),
            chance.randrange(6), chance.randrange(3), abs(number(chance)),
            chance.choice((0.5, 3.0, 8.0)),
        )
        for _ in range(length)
    )  # fmt: skip
    first = chance.randrange(length) if length else 0
    loops = ((first, chance.randrange(first, length)),) if length and chance.random() < 0.5 else ()
    labels = {str(i): i for i in range(3)}
    aligner = Aligner.of(LaunchSequence(launches, loops, {}), labels, labels)
    kinds = indices(chance, count, 7, np.int64)
    columns = (indices(chance, count, 5, np.int64) for _ in range(4))
    if chance.random() < 0.3:
        aligner = aligner.among(np.array([i for i in range(length) if chance.random() < 0.5], int))
    return aligner.align(EventSequence(kinds, *columns, numbers(chance, count)))


# The simulator


def simulator(chance: Random) -> object:
    """Tasks of any length, with any number of waits; negative and endless ones are refused."""
    limit = chance.choice((100, 100, 2**40, 2**57, 2**62, None))

    def time() -> int:
        if limit is None:
            return chance.choice((-1, 0, 1, number(chance)))
        return chance.randrange(limit)

    named: Any = SimpleNamespace(name="task")
    nodes = []
    for _ in range(size(chance)):
        kind = chance.choice((KERNEL, START, START, DONE, READ))
        talks = chance.random() < 0.5
        slows = Contention(*(chance.choice((0.0, 0.12, 1.0)) for _ in range(5)))
        places = (chance.randrange(1, 3), chance.randrange(ENGINES), chance.randrange(4))
        links = tuple((link, chance.choice((0.0, 1e-9, 0.3, 1.0))) for link in range(len(LINKS)))
        nodes.append(Node(kind, named, time(), time(), *places, talks, slows, 0, time(), links))
    order = indices(chance, size(chance), len(nodes)) if nodes else np.empty(0, np.int32)
    graph = TaskGraph(named, ["compute", "one", "two"], nodes, order, 4)
    overheads = Overheads(latency_us=chance.choice((0, 4)))
    times = clock.run(graph, overheads)
    if len(order):
        _windows(chance, clock.Clock(graph, overheads), order)
    return times


def _windows(chance: Random, known: clock.Clock, order: Array) -> None:
    """Other orders of the same nodes, some of which take no time, in windows; some are kept."""
    windows = WindowClock(known, order)
    for _ in range(3):
        first, last = sorted(chance.randrange(len(order) + 1) for _ in range(2))
        nodes = order[first:last].copy()
        chance.shuffle(nodes)
        nodes[indices(chance, len(nodes), 4) == 0] = -1
        if last > first:
            windows.span_ps(first, nodes)
            if chance.random() < 0.5:
                windows.keep()


# Views and exports


def _tracks(chance: Random) -> Tracks:
    """Tracks; mostly with starts and ends in order, as tracks are."""
    count = chance.choice((size(chance), 70))
    if count < 70:
        starts, durations = np.sort(numbers(chance, count)), numbers(chance, count)
    else:
        few = numbers(chance, 2)
        starts, durations = few[0] + np.arange(count), np.full(count, abs(int(few[1])) % 50)
    split = chance.randrange(count + 1)
    kinds = np.resize(indices(chance, 7, 4, np.uint8), count)
    order = np.arange(count)[::-1].copy() if chance.random() < 0.5 else None
    lanes = np.array([0, 1])
    return Tracks(starts, durations, kinds, order, np.array([0, split, count]), lanes, lanes * 0)


def _window(chance: Random) -> tuple[int, int]:
    """As `Scene.ps` makes it: times up to 2^61."""
    times = (min(max(number(chance), -(1 << 61)), 1 << 61) for _ in range(2))
    first, last = sorted(times)
    return first, max(last, first + 1)


def views(chance: Random) -> object:
    tracks = _tracks(chance)
    kind = chance.randrange(4)
    if kind < 2:
        pixels = chance.choice((1, 3, 100))
        return tiles(pyramid(tracks), np.array([0, 1]), *_window(chance), pixels)
    count = len(tracks.start_ps)
    groups = np.resize(indices(chance, 5, 4), count)
    order = np.zeros(1, np.int64) if tracks.order is None else tracks.order
    columns = (tracks.start_ps, tracks.duration_ps)
    if kind == 2:
        own, low = numbers(chance, count), chance.randrange(count + 1)
        whose = (own, groups, order, int(tracks.order is not None))
        sums = (np.zeros(4), np.zeros(4, np.int64))
        return range_summary._add(*columns, *whose, low, count, *_window(chance), *sums)
    whose = (groups, order, int(tracks.order is not None), np.array([1, 0, 1, 0], np.bool_))
    heap = (np.full(6, -1, np.int64), np.zeros(6, np.int64), 6)
    return search._longest(*columns, *whose, count, *_window(chance), *heap)


def view_tracks(chance: Random) -> object:
    starts, durations, kinds = _segments(chance)
    count = len(starts)
    lanes, overlaps = np.sort(kinds).astype(np.int32), np.array([0, 5, 20_000_000])
    if chance.random() < 0.5:
        rows = np.arange(count)
        return serve_tracks._laid_out(rows, starts, durations, int(chance.choice(overlaps)))
    most = chance.randrange(1, 5)
    found = (np.empty(most, np.int64), np.empty(most, np.int64), most)
    lane_of = np.arange(3, dtype=np.int32)
    return serve_tracks._runs(lanes, lane_of, overlaps, starts, durations, count, *found)


def perfetto(chance: Random) -> object:
    if chance.random() < 0.5:
        count = size(chance)
        times = (numbers(chance, count), numbers(chance, count))
        return lay_out(np.arange(count), *times, chance.random() < 0.5)
    packets = Packets()
    slots = [chance.randrange(3) for _ in range(3)]
    tag = fixed_tag(47)
    made = [packets.template(b"x" * chance.randrange(200), tag * n) for n in slots]
    chosen = indices(chance, size(chance), 3, np.int64)
    filled = sum(slots[i] for i in chosen.tolist())
    values = numbers(chance, filled).view(np.uint64)
    packets.add(numbers(chance, len(chosen)), np.array(made)[chosen], values)
    return list(packets.assembled())


NATIVE: dict[str, Target] = {
    "xplane: events": xplane_events,
    "xplane: lines": xplane_lines,
    "xplane: fields": wire_fields,
    "nsys: rows": nsys_rows,
    "nsys: launches": nsys_launches,
    "nsys: ranges": nsys_ranges,
    "profile: groups": group_pairs,
    "profile: group-bys": group_by,
    "profile: places": group_places,
    "profile: nesting": nesting,
    "profile: timeline": timeline,
    "profile: concurrency": concurrency,
    "profile: executions": execution_numbers,
    "profile: alignment": alignment,
    "simulate: clock": simulator,
    "serve: views": views,
    "serve: tracks": view_tracks,
    "perfetto: packets, tracks": perfetto,
}
"""every native function is called by one of these"""

EXPECTED = (SlipstreamError, IndexError)
"""what a target may raise: an error of ours, or the number of a group that does not exist"""


def settle(make_array: Callable[[Array], Array]) -> None:
    """Make an input cost microseconds: buffers that calls share lie between guard pages for good,
    and pages are read without a pool of threads."""
    scratch = events._SCRATCH
    scratch.values = np.empty((events.MOST_TAGS + 1) * _wanted().width, np.int64)
    for name in ("tag_table", "text_table", "tails", "spans", "values", "state"):
        setattr(scratch, name, make_array(getattr(scratch, name)))
    sqlite_pages.ThreadPoolExecutor = _InTurn  # type: ignore[assignment,misc]


class _InTurn:
    """A pool of threads without threads."""

    def __init__(self, workers: int) -> None:
        pass

    def __enter__(self) -> _InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Sequence[Any]:
        return [function(item) for item in items]
