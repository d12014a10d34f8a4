"""A profile as a Perfetto trace: devices and hosts are processes, lanes are threads.

    Trace ─┬─ packet   every text once (interned data), then a descriptor for each track
           ├─ packet   time · a slice begins: track, name, category, annotations
           ├─ packet   time · a slice ends: track
           ┆

Field numbers are those of Perfetto's TracePacket, TrackDescriptor, TrackEvent and InternedData.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from slipstream.outputs.packets import SEQUENCE, STARTS_SEQUENCE, Packets, packet
from slipstream.outputs.tracks import Track, lay_out
from slipstream.outputs.wire import message, number, string
from slipstream.profile.events import Array, Table
from slipstream.profile.profile import Profile
from slipstream.units import PS_PER_NS
from slipstream.writing import atomic_write

FLAT_ROLES = ("stream", "async")
"""lanes whose events run side by side where they overlap; elsewhere one may be inside another"""
DEVICE_ANNOTATIONS = {"kernel": "name", "op": "op", "program": "program", "details": "details"}
"""what is said about a device event, and the column that says it"""

_BEGIN, _END = number(9, 1), number(9, 2)


@dataclass(frozen=True)
class _Slices:
    """What one table of events draws: what its rows are called, and what is said about them."""

    table: Table
    category: str
    names: Array
    """index into the table's texts for each row"""
    annotations: dict[str, str] = field(default_factory=dict)


def write_perfetto(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Writes a profile's device and host events as a trace that ui.perfetto.dev opens."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        for piece in perfetto_bytes(profile):
            file.write(piece)


def perfetto_bytes(profile: Profile) -> Iterator[bytes]:
    """The trace, piece by piece."""
    texts, packets, tracks = _Texts(), Packets(), _Tracks(profile)
    events, host_events = profile.events, profile.host_events
    named = np.where(events["instruction"] > 0, events["instruction"], events["name"])
    tables = (
        _Slices(events, "device", named, DEVICE_ANNOTATIONS),
        _Slices(host_events, "host", host_events["name"]),
    )
    # Timestamps can't be negative, but an event may begin before the profile's origin.
    origin_ps = min(int(slices.table["start_ps"].min(initial=0)) for slices in tables)
    for slices in tables:
        _draw(slices, origin_ps, texts, packets, tracks)
    yield texts.packet()
    yield from tracks.descriptors
    yield from packets.assembled()


def _draw(
    slices: _Slices, origin_ps: int, texts: _Texts, packets: Packets, tracks: _Tracks
) -> None:
    starts_ps = slices.table["start_ps"] - origin_ps
    starts = starts_ps // PS_PER_NS
    ends = (starts_ps + slices.table["duration_ps"]) // PS_PER_NS
    kinds, bodies = _bodies(slices, texts)
    for lane, rows in _by_lane(slices.table["lane"]):
        nested = tracks.profile.lanes[lane].role not in FLAT_ROLES
        for level, track in enumerate(lay_out(rows, starts, ends, nested)):
            times = np.where(track.opens, starts[track.rows], ends[track.rows])
            on_track = number(11, tracks.uuid(lane, level))
            packets.add(times, _templates(track, kinds, bodies, on_track, packets))


def _templates(
    track: Track, kinds: Array, bodies: Sequence[bytes], on_track: bytes, packets: Packets
) -> Array:
    """The template of each opening and closing on a track."""
    numbers = np.full(len(track.rows), packets.template(_END + on_track), np.int64)
    used, which = np.unique(kinds[track.rows[track.opens]], return_inverse=True)
    begins = [packets.template(_BEGIN + on_track + bodies[kind]) for kind in used.tolist()]
    numbers[track.opens] = np.array(begins, np.int64)[which]
    return numbers


def _bodies(slices: _Slices, texts: _Texts) -> tuple[Array, list[bytes]]:
    """Rows that say the same are of one kind: the kind of each row, and what each kind says."""
    columns = [slices.names, *(slices.table[c] for c in slices.annotations.values())]
    kinds = np.zeros(len(slices.table), np.int64)
    for column in columns:
        kinds = kinds * (int(column.max(initial=0)) + 1) + column
        kinds = np.unique(kinds, return_inverse=True)[1].astype(np.int64)
    examples = np.zeros(int(kinds.max(initial=-1)) + 1, np.int64)
    examples[kinds] = np.arange(len(kinds))
    category = number(3, texts.index("category", slices.category))
    bodies = []
    for row in examples.tolist():
        name = slices.table.texts[int(slices.names[row])]
        said = {a: slices.table.text(c, row) for a, c in slices.annotations.items()}
        notes = (_annotation(a, text, texts) for a, text in said.items() if text)
        bodies.append(number(10, texts.index("name", name)) + category + b"".join(notes))
    return kinds, bodies


def _annotation(name: str, text: str, texts: _Texts) -> bytes:
    return message(
        4, number(1, texts.index("annotation", name)), number(17, texts.index("value", text))
    )


def _by_lane(lanes: Array) -> Iterator[tuple[int, Array]]:
    order = np.argsort(lanes, kind="stable")
    used, begins = np.unique(lanes[order], return_index=True)
    # An empty array splits into one empty part, which no lane has.
    yield from zip(used.tolist(), np.split(order, begins[1:]), strict=False)


class _Texts:
    """Every text once, by what it is for: Perfetto numbers each sort on its own, from 1."""

    _FIELDS = {"category": 1, "name": 2, "annotation": 3, "value": 29}

    def __init__(self) -> None:
        self._indices: dict[str, dict[str, int]] = {sort: {} for sort in self._FIELDS}

    def index(self, sort: str, text: str) -> int:
        indices = self._indices[sort]
        return indices.setdefault(text, len(indices) + 1)

    def packet(self) -> bytes:
        entries = (
            message(self._FIELDS[sort], number(1, index), string(2, text))
            for sort, indices in self._indices.items()
            for text, index in indices.items()
        )
        flags = number(10, SEQUENCE) + number(13, STARTS_SEQUENCE)
        return packet(flags, message(12, *entries))


class _Tracks:
    """Numbers tracks as they are asked for, and describes each to the viewer once."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.descriptors: list[bytes] = []
        self._uuids: dict[tuple[str, int, int], int] = {}

    def uuid(self, lane: int, level: int) -> int:
        """Track of a lane; further levels hold what overlaps on the levels before."""
        if found := self._uuids.get(("lane", lane, level)):
            return found
        name = self.profile.lanes[lane].name or f"lane {lane}"
        if level:
            parent = self.uuid(lane, 0)
            told = string(2, f"{name}, overlapping {level}") + number(5, parent)
        else:
            # Thread ids stay clear of process ids: equal ones would mean a main thread.
            pid = self._process(lane)
            tid = 1 + len(self.profile.devices) + len(self.profile.hosts) + lane
            told = message(4, number(1, pid), number(2, tid), string(5, name))
        return self._describe(("lane", lane, level), told)

    def _process(self, lane: int) -> int:
        device, host = self.profile.lanes[lane].device, self.profile.lanes[lane].host
        pid = 1 + (len(self.profile.devices) + host if device is None else device)
        if ("process", pid, 0) not in self._uuids:
            process = message(3, number(1, pid), string(6, self._process_name(device, host)))
            self._describe(("process", pid, 0), process)
        return pid

    def _process_name(self, device: int | None, host: int) -> str:
        host_name = self.profile.hosts[host].name
        if device is None:
            return f"host {host_name}"
        name = f"{self.profile.devices[device].name} {self.profile.devices[device].model}".strip()
        return f"{host_name} {name}" if len(self.profile.hosts) > 1 else name

    def _describe(self, key: tuple[str, int, int], told: bytes) -> int:
        uuid = self._uuids[key] = len(self._uuids) + 1
        self.descriptors.append(packet(number(10, SEQUENCE), message(60, number(1, uuid), told)))
        return uuid
