"""XPlane files (JAX's profiler) into a Profile.

    XSpace { planes=1, errors=2, warnings=3, hostnames=4 }
    XPlane { id=1, name=2, lines=3, event_metadata=4, stat_metadata=5, stats=6 }
    XLine  { id=1, name=2, timestamp_ns=3, events=4, duration_ps=9, display_id=10, display_name=11 }

Metadata is small and read at once (`metadata`); events are many and go through `events`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    NO_SLOT,
    STILL_SLOT,
    TEXT_SLOT,
    DecodedChunk,
    Lookup,
    decode_events,
    lookup,
)
from slipstream.sources.xplane.lines import CHUNK_EVENTS, scan_line
from slipstream.sources.xplane.metadata import EventMetadata, Metadata, Value, broken, fields

if TYPE_CHECKING:
    from slipstream.sources.prefetch import FileWalk

_MANY = 1
"""chunks that take long enough to do something else meanwhile"""

_STILL = (
    "context_id", "cuda_graph_node_id", "name", "occupancy_min_grid_size",
    "occupancy_suggested_block_size", "prefix", "tf_op", "theoretical_occupancy_pct",
    "unique_hlo_op_id",
)  # fmt: skip
"""stats that say the same of every event of an instruction; knowing them saves reading them"""


@dataclass(frozen=True)
class XLine:
    """Where a line's events lie, and what the line says of itself."""

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
    """index 0 stands for events whose metadata is not in the file"""
    event_index: dict[int, int]
    stat_names: dict[int, str]
    stats: dict[str, Value]

    def has_stat(self, *names: str) -> bool:
        return any(name in names for name in self.stat_names.values())


@dataclass(frozen=True)
class XSpace:
    """One XPlane file: its planes and what the profiler said of the recording."""

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
class DecodedEvents:
    """Columns of the events of some lines, in the order of the lines.

    What all events of one tag share is held once: those columns have a row for each tag.
    """

    tag: Array
    start_ps: Array
    duration_ps: Array
    varying: dict[str, Array]
    """numbers that are each event's own"""
    line: Array
    """index of the line, of each tag; and so on"""
    metadata: Array
    seen: Array
    numbers: dict[str, Array]
    texts: dict[str, Array]
    _bits: dict[str, int]

    def any(self, stat: str) -> bool:
        """Whether some event carries the stat."""
        return bool(self.has(stat).any())

    def has(self, stat: str) -> Array:
        """Which tags' events carry the stat."""
        if stat not in self._bits:
            return np.zeros(len(self.seen), bool)
        return (self.seen >> self._bits[stat] & 1).astype(bool)

    def number(self, stat: str) -> Array:
        """A number of each event, whether it varies or not; 0 where there is none."""
        if stat in self.varying:
            return self.varying[stat]
        if stat in self.numbers:
            return self.numbers[stat][self.tag]
        return np.zeros(len(self.tag), np.int64)


def read_xspace(path: Path, data: Array, walk: FileWalk | None = None) -> XSpace:
    """The planes of a file, with metadata read and events still on disk.

    `walk` has already found the events of long lines.
    """
    planes, programs = [], {}
    notes: dict[int, list[str]] = {2: [], 3: [], 4: []}
    for number, kind, length, payload in fields(path, data, 0, len(data), "XSpace"):
        if number == 1 and kind == wire.BYTES:
            plane, found = _read_plane(path, data, payload, payload + length, walk)
            planes.append(plane)
            programs.update(found)
        elif number in notes and kind == wire.BYTES:
            notes[number].append(wire.text(data, payload, length))
    if not planes:
        raise BadInput(
            f"{path} holds no XPlane: {len(data)} bytes and no plane in them; expected the "
            "*.xplane.pb that jax.profiler.stop_trace() writes"
        )
    errors, warnings, hostnames = (tuple(notes[number]) for number in (2, 3, 4))
    return XSpace(path, data, tuple(planes), programs, errors, warnings, hostnames)


def decode(
    space: XSpace,
    plane: XPlane,
    lines: tuple[XLine, ...],
    base_ns: int,
    varying: tuple[str, ...],
    numbers: tuple[str, ...],
    texts: dict[str, tuple[str, ...]],
    interned: Texts,
    progress: Callable[[int], None] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
) -> DecodedEvents:
    """Decode events of some lines of a plane, with the stats asked for, on all cores.

    `varying` numbers are each event's own, `numbers` are shared by many. `texts` maps a column to
    the stats that may fill it: GPU planes say where a copy went in `memcpy_details` and how a
    kernel ran in `kernel_details`, never both. `meanwhile` is called while threads decode, if
    that takes them a while.
    """
    # A column is only made for stats that this plane has at all.
    varying, numbers = (
        tuple(n for n in names if plane.has_stat(n)) for names in (varying, numbers)
    )
    texts = {column: names for column, names in texts.items() if plane.has_stat(*names)}
    slots = _slots(plane, varying + numbers, texts)
    rows = sum(line.count for line in lines)
    out = (
        np.empty(rows, np.int32),
        np.empty(rows, np.int64),
        np.empty(rows, np.int64),
        np.zeros((len(varying), rows), np.int64),
    )
    lookups = (slots, _text_lookup(plane, interned), lookup(plane.event_index, 0))
    sizes = (len(varying), len(numbers), len(texts))
    tags = _Tags(space.data, interned, len(texts))
    _run_chunks(space, lines, base_ns, lookups, out, sizes, tags, progress, meanwhile)
    table = tags.table(3 + len(numbers) + len(texts))
    bits = {name: i for i, name in enumerate(varying + numbers)}
    bits |= {column: TEXT_SLOT + i for i, column in enumerate(texts)}
    first_text = 3 + len(numbers)
    return DecodedEvents(
        *out[:3],
        {name: out[3][i] for i, name in enumerate(varying)},
        table[0].astype(np.int32),
        table[1],
        table[2],
        {name: table[3 + i] for i, name in enumerate(numbers)},
        {column: table[first_text + i].astype(TEXT) for i, column in enumerate(texts)},
        bits,
    )


class _Tags:
    """Tags of all parts, numbered as they appear: (line, metadata, seen, numbers, texts)."""

    def __init__(self, data: Array, interned: Texts, texts: int) -> None:
        self.data = data
        self.interned = interned
        self.texts = texts
        self.index: dict[tuple[int, ...], int] = {}

    def renumber(self, line: int, part: DecodedChunk, column: Array) -> None:
        """Give a part's rows the numbers that its tags have among those of all parts."""
        if len(part.spans):
            spans = (wire.text(self.data, *span) for span in part.spans.tolist())
            known = np.array([self.interned.index(text) for text in spans], np.int64)
            texts = part.tags[:, -self.texts :]
            own = texts < 0
            texts[own] = known[-1 - texts[own]]
        index = self.index
        numbers = [index.setdefault((line, *tag), len(index)) for tag in part.tags.tolist()]
        rows = column[part.first : part.last]
        np.take(np.array(numbers, np.int32), rows, out=rows, mode="clip")

    def table(self, width: int) -> Array:
        """A row for each column of the tags."""
        return np.array(list(self.index), np.int64).reshape(len(self.index), width).T.copy()


def _run_chunks(
    space: XSpace,
    lines: tuple[XLine, ...],
    base_ns: int,
    lookups: tuple[Lookup, Lookup, Lookup],
    out: tuple[Array, ...],
    sizes: tuple[int, int, int],
    tags: _Tags,
    progress: Callable[[int], None] | None,
    meanwhile: Callable[[], None],
) -> None:
    jobs = []
    row = 0
    for index, line in enumerate(lines):
        base_ps = _wrapped((line.timestamp_ns - base_ns) * 1000)
        for start, count in zip(line.starts, line.counts, strict=True):
            jobs.append((index, start, line.end, count, base_ps, row))
            row += count

    def run(job: tuple[int, int, int, int, int, int]) -> list[DecodedChunk]:
        _, start, end, count, base_ps, row = job
        where = (start, end, count, base_ps)
        parts, at, status = decode_events(space.data, *where, lookups, out, row, sizes)
        if status != wire.OK:
            raise broken(space.path, at, status, "XEvent")
        release(space.data, start, at)
        return parts

    decoded = in_order(run, jobs)
    if len(jobs) > _MANY:
        meanwhile()
    # The order of the jobs is the order of the rows, so numbering is deterministic.
    for parts, job in zip(decoded, jobs, strict=True):
        for part in parts:
            tags.renumber(job[0], part, out[0])
        if progress is not None:
            progress(job[1])


def _slots(plane: XPlane, numbers: tuple[str, ...], texts: dict[str, tuple[str, ...]]) -> Lookup:
    wanted = {name: i for i, name in enumerate(numbers)}
    for i, names in enumerate(texts.values()):
        wanted |= {name: TEXT_SLOT + i for name in names}
    wanted |= {name: STILL_SLOT for name in _STILL if name not in wanted}
    ids = {key: wanted[name] for key, name in plane.stat_names.items() if name in wanted}
    return lookup(ids, NO_SLOT)


def _text_lookup(plane: XPlane, interned: Texts) -> Lookup:
    """Stat ids double as texts: a `ref` value names the stat metadata whose name is meant."""
    return lookup({key: interned.index(name) for key, name in plane.stat_names.items()}, 0)


def _read_plane(
    path: Path, data: Array, start: int, end: int, walk: FileWalk | None
) -> tuple[XPlane, dict[str, tuple[int, int]]]:
    rows = fields(path, data, start, end, "XPlane")
    names = [wire.text(data, p, n) for number, kind, n, p in rows if (number, kind) == (2, 2)]
    name = names[-1] if names else ""
    lines = tuple(
        _read_line(path, data, p, p + n, walk)
        for number, kind, n, p in rows
        if (number, kind) == (3, 2)
    )
    if name == "/host:metadata":
        # Its event metadata are whole programs, of megabytes each: found now, read when needed.
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
    identity, time, *texts = header
    name = wire.text(data, *texts[2:]) or wire.text(data, *texts[:2])
    return XLine(name, identity, time, end, starts, counts)


def _find_programs(
    path: Path, data: Array, rows: list[tuple[int, ...]]
) -> dict[str, tuple[int, int]]:
    """`name(id)` to the place of its HloProto: XEventMetadata{name=2, stats=5{bytes=6}}."""
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
    """A Python integer as int64 arithmetic would leave it; broken files hold such timestamps."""
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)
