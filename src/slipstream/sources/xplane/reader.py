"""XPlane files (JAX's profiler) into a Profile.

    XSpace { planes=1, errors=2, warnings=3, hostnames=4 }
    XPlane { id=1, name=2, lines=3, event_metadata=4, stat_metadata=5, stats=6 }
    XLine  { id=1, name=2, timestamp_ns=3, events=4, duration_ps=9, display_id=10, display_name=11 }

Metadata is small and read immediately (`metadata`); events are many and decoded by `events`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from slipstream.errors import BadInput
from slipstream.profile.events import TEXT, Array, Texts
from slipstream.sources import wire
from slipstream.sources.files import release
from slipstream.sources.parallel import in_order
from slipstream.sources.xplane.events import (
    CONSTANT_SLOT,
    NO_SLOT,
    TEXT_SLOT,
    Chunk,
    Columns,
    DecodedRows,
    Wanted,
    decode_events,
    lookup,
)
from slipstream.sources.xplane.lines import CHUNK_EVENTS, scan_line
from slipstream.sources.xplane.metadata import EventMetadata, Metadata, Value, broken, fields

if TYPE_CHECKING:
    from slipstream.sources.prefetch import FileWalk

_CONSTANT = (
    "context_id", "name", "occupancy_min_grid_size", "occupancy_suggested_block_size", "prefix",
    "tf_op", "theoretical_occupancy_pct", "unique_hlo_op_id",
)  # fmt: skip
"""stats that are the same for every event of an instruction; knowing them saves reading them"""
_OF_SPACE = (wire.numbers(1, 2, 3, 4), 64)
_OF_PLANE = (wire.numbers(2, 3, 4, 5, 6), 12)
"""fields that are used, and how long they are at least, on the average"""
_EVENT_BYTES = 6
"""of an event, at least, on the average: the field's head, a name and a time"""


@dataclass(frozen=True)
class XLine:
    """One line: its name and time, and where its events lie."""

    name: str
    id: int
    timestamp_ns: int
    end: int
    starts: list[int]
    counts: list[int]

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(frozen=True)
class XPlane:
    """One plane, its lines found and its metadata read; events are not decoded yet."""

    name: str
    lines: tuple[XLine, ...]
    events: tuple[EventMetadata, ...]
    """index 0 stands for events whose metadata is missing from the file"""
    event_index: dict[int, int]
    stat_names: dict[int, str]
    stats: dict[str, Value]

    def has_stat(self, *names: str) -> bool:
        return any(name in names for name in self.stat_names.values())


@dataclass(frozen=True)
class XSpace:
    """One XPlane file: its planes, and the profiler's errors and warnings."""

    path: Path
    data: Array
    planes: tuple[XPlane, ...]
    programs: dict[str, tuple[int, int]]
    """`name(id)` to where that program's HloProto lies in the file: (offset, length)"""
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    hostnames: tuple[str, ...]

    def plane(self, name: str) -> XPlane | None:
        return next((plane for plane in self.planes if plane.name == name), None)


@dataclass(frozen=True)
class StatColumns:
    """Stats to decode from the events of a plane."""

    varying: tuple[str, ...] = ()
    """numbers that each event has of its own"""
    shared: tuple[str, ...] = ()
    """numbers that are the same for many events"""
    texts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """column to the stats that may fill it: a GPU's event has `memcpy_details` or
    `kernel_details`, never both"""

    def present_in(self, plane: XPlane) -> StatColumns:
        """The stats that the plane has at all."""
        varying, shared = (
            tuple(name for name in names if plane.has_stat(name))
            for names in (self.varying, self.shared)
        )
        texts = {column: names for column, names in self.texts.items() if plane.has_stat(*names)}
        return StatColumns(varying, shared, texts)

    @property
    def slots(self) -> dict[str, int]:
        """The decoder's slot of each number and of each text column."""
        numbers = {name: i for i, name in enumerate(self.varying + self.shared)}
        return numbers | {column: TEXT_SLOT + i for i, column in enumerate(self.texts)}


@dataclass(frozen=True)
class DecodedEvents:
    """Columns of the events of some lines, in the order of the lines.

    Values that all events of a tag share are stored once: those columns have a row for each tag.
    """

    tag: Array
    start_ps: Array
    duration_ps: Array
    varying: dict[str, Array]
    """numbers that each event has of its own"""
    line: Array
    """index of the line, for each tag; so are the columns below"""
    metadata: Array
    seen: Array
    """bits of the stats that the tag's events carry"""
    shared: dict[str, Array]
    texts: dict[str, Array]
    _slots: dict[str, int]

    def any(self, stat: str) -> bool:
        """Whether some event carries the stat."""
        return bool(self.has(stat).any())

    def has(self, stat: str) -> Array:
        """Which tags' events carry the stat."""
        if stat not in self._slots:
            return np.zeros(len(self.seen), bool)
        return (self.seen >> self._slots[stat] & 1).astype(bool)

    def number(self, stat: str) -> Array:
        """A number of each event, whether it varies or not; 0 where there is none."""
        if stat in self.varying:
            return self.varying[stat]
        if stat in self.shared:
            return self.shared[stat][self.tag]
        return np.zeros(len(self.tag), np.int64)


def read_xspace(path: Path, data: Array, walk: FileWalk | None = None) -> XSpace:
    """The planes of a file, with metadata read and events still on disk.

    `walk` has already found the events of long lines.
    """
    planes, programs = [], {}
    notes: dict[int, list[str]] = {2: [], 3: [], 4: []}
    for number, kind, length, payload in fields(path, data, 0, len(data), "XSpace", *_OF_SPACE):
        if number == 1 and kind == wire.BYTES:
            plane, found = _read_plane(path, data, payload, payload + length, walk)
            planes.append(plane)
            programs.update(found)
        elif number in notes and kind == wire.BYTES:
            notes[number].append(wire.text(data, payload, length))
    if not planes:
        raise BadInput(
            f"{path} contains no XPlane: {len(data)} bytes without a plane; expected the "
            "*.xplane.pb that jax.profiler.stop_trace() writes"
        )
    errors, warnings, hostnames = (tuple(notes[number]) for number in (2, 3, 4))
    return XSpace(path, data, tuple(planes), programs, errors, warnings, hostnames)


def decode(
    space: XSpace,
    plane: XPlane,
    lines: tuple[XLine, ...],
    stats: StatColumns,
    interned: Texts,
    *,
    base_ns: int = 0,
    progress: Callable[[int], None] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> DecodedEvents:
    """Decode events of some lines of a plane, on all cores.

    Times count from `base_ns`. `progress` is called with the offset in the file, `meanwhile` while
    threads decode, if there is more than one chunk to decode.
    """
    stats = stats.present_in(plane)
    shared = len(stats.shared)
    wanted = Wanted(
        _slot_lookup(plane, stats),
        _text_lookup(plane, interned),
        lookup(plane.event_index, 0),
        len(stats.varying),
        shared,
        len(stats.texts),
    )
    out = Columns.of(sum(line.count for line in lines), len(stats.varying))
    tags = _Tags(space.data, interned, wanted)
    chunks = list(_chunks(lines, base_ns))
    decoded = in_order(partial(_decode_chunk, space, wanted, out), chunks)
    if len(chunks) > 1:
        meanwhile()
    # Chunks come in the order of the rows, so tags are always numbered alike.
    for chunk, parts in zip(chunks, decoded, strict=True):
        for rows in parts:
            tags.renumber(chunk.line, rows, out.tags)
        if progress is not None:
            progress(chunk.start)
    table = tags.table()
    return DecodedEvents(
        out.tags,
        out.values[0],
        out.values[1],
        dict(zip(stats.varying, out.values[2:], strict=True)),
        table[0].astype(np.int32),
        table[1],
        table[2],
        dict(zip(stats.shared, table[3 : 3 + shared], strict=True)),
        {
            c: column.astype(TEXT)
            for c, column in zip(stats.texts, table[3 + shared :], strict=True)
        },
        stats.slots,
    )


def _chunks(lines: tuple[XLine, ...], base_ns: int) -> Iterator[Chunk]:
    row = 0
    for index, line in enumerate(lines):
        base_ps = _wrapped((line.timestamp_ns - base_ns) * 1000)
        for start, count in zip(line.starts, line.counts, strict=True):
            yield Chunk(index, start, line.end, count, base_ps, row)
            row += count


def _decode_chunk(space: XSpace, wanted: Wanted, out: Columns, chunk: Chunk) -> list[DecodedRows]:
    decoded, at, status = decode_events(space.data, chunk, wanted, out)
    if status != wire.OK:
        raise broken(space.path, at, status, "XEvent")
    release(space.data, chunk.start, at)
    return decoded


class _Tags:
    """Tags of all chunks, numbered as they appear: (line, metadata, seen, numbers, texts)."""

    def __init__(self, data: Array, interned: Texts, wanted: Wanted) -> None:
        self.data = data
        self.interned = interned
        self.texts = wanted.texts
        self.width = 1 + wanted.width
        self.index: dict[tuple[int, ...], int] = {}

    def renumber(self, line: int, decoded: DecodedRows, column: Array) -> None:
        """Replace tag numbers of one call's rows by those among all tags."""
        if len(decoded.spans):
            spans = (wire.text(self.data, *span) for span in decoded.spans.tolist())
            known = np.array([self.interned.index(text) for text in spans], np.int64)
            texts = decoded.tags[:, -self.texts :]
            own = texts < 0
            texts[own] = known[-1 - texts[own]]
        index = self.index
        numbers = [index.setdefault((line, *tag), len(index)) for tag in decoded.tags.tolist()]
        rows = column[decoded.first : decoded.last]
        np.take(np.array(numbers, np.int32), rows, out=rows, mode="clip")

    def table(self) -> Array:
        """A row for each column of the tags."""
        return np.array(list(self.index), np.int64).reshape(len(self.index), self.width).T.copy()


def _slot_lookup(plane: XPlane, stats: StatColumns) -> Array:
    slots = stats.slots
    wanted = {name: slots[name] for name in stats.varying + stats.shared}
    wanted |= {name: slots[column] for column, names in stats.texts.items() for name in names}
    wanted |= {name: CONSTANT_SLOT for name in _CONSTANT if name not in wanted}
    ids = {key: wanted[name] for key, name in plane.stat_names.items() if name in wanted}
    return lookup(ids, NO_SLOT)


def _text_lookup(plane: XPlane, interned: Texts) -> Array:
    """Stat ids double as texts: a `ref` value is the id of the stat whose name is meant."""
    return lookup({key: interned.index(name) for key, name in plane.stat_names.items()}, 0)


def _read_plane(
    path: Path, data: Array, start: int, end: int, walk: FileWalk | None
) -> tuple[XPlane, dict[str, tuple[int, int]]]:
    rows = fields(path, data, start, end, "XPlane", *_OF_PLANE)
    names = [wire.text(data, p, n) for number, kind, n, p in rows if (number, kind) == (2, 2)]
    name = names[-1] if names else ""
    lines = tuple(
        _read_line(path, data, p, p + n, walk)
        for number, kind, n, p in rows
        if (number, kind) == (3, 2)
    )
    if name == "/host:metadata":
        # Its event metadata are programs of megabytes each: found now, read when needed.
        programs = _find_programs(path, data, rows)
        rows = [row for row in rows if row[0] != 4]
    else:
        programs = {}
    metadata = Metadata(path, data, rows)
    events = (EventMetadata(), *metadata.events.values())
    index = {key: i for i, key in enumerate(metadata.events, 1)}
    return XPlane(name, lines, events, index, metadata.stat_names, metadata.stats), programs


def _read_line(path: Path, data: Array, start: int, end: int, walk: FileWalk | None) -> XLine:
    scan = walk.scan(start, end) if walk else None
    if scan is None:
        scan = scan_line(data, start, end, CHUNK_EVENTS, cpu_count() or 1)
    starts, counts, header, at, status = scan
    if status != wire.OK:
        raise broken(path, at, status, "XLine")
    # Columns of an event take twenty times the bytes of an empty one.
    if sum(counts) > wire.FEW + (end - start) // _EVENT_BYTES:
        raise broken(path, start, wire.CROWDED, "XLine")
    identity, time, *texts = header
    name = wire.text(data, *texts[2:]) or wire.text(data, *texts[:2])
    return XLine(name, identity, time, end, starts, counts)


def _find_programs(
    path: Path, data: Array, rows: list[tuple[int, ...]]
) -> dict[str, tuple[int, int]]:
    """`name(id)` to where its HloProto lies: XEventMetadata{name=2, stats=5{bytes=6}}."""
    found = {}
    for number, kind, length, payload in rows:
        if number != 4 or kind != wire.BYTES:
            continue
        entry = fields(path, data, payload, payload + length, "event_metadata")
        for key, type_, size, at in entry:
            if (key, type_) != (2, wire.BYTES):
                continue
            name, proto = "", None
            for field_, kind_, n, p in fields(path, data, at, at + size, "XEventMetadata"):
                if field_ == 2 and kind_ == wire.BYTES:
                    name = wire.text(data, p, n)
                elif field_ == 5 and kind_ == wire.BYTES:
                    for f, k, n2, p2 in fields(path, data, p, p + n, "XStat"):
                        if (f, k) == (6, wire.BYTES):
                            proto = (p2, n2)
            if proto is not None:
                found[name] = proto
    return found


def _wrapped(value: int) -> int:
    """A Python integer wrapped to int64, as timestamps of damaged files need it."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
