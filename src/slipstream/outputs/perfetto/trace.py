"""A profile as a Perfetto trace: devices and hosts are processes, lanes are threads.

    Trace ─┬─ packet   every text once (interned data), then a descriptor for each track
           ├─ packet   time · a slice begins: track, name, category, annotations, arrows
           ├─ packet   time · a slice ends: track
           ├─ packet   time · a counter's value
           ┆

Field numbers are those of Perfetto's TracePacket, TrackDescriptor, TrackEvent and InternedData.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from slipstream.outputs.perfetto.counters import counters
from slipstream.outputs.perfetto.flows import async_arrows, launch_arrows
from slipstream.outputs.perfetto.packets import Packets
from slipstream.outputs.perfetto.slices import EventSlices, device_slices, host_slices
from slipstream.outputs.perfetto.track_layout import Track, lay_out
from slipstream.outputs.perfetto.tracks import InternedTexts, TrackDescriptors
from slipstream.outputs.wire import fixed_tag, message, number
from slipstream.profile.events import Array
from slipstream.profile.profile import Profile
from slipstream.units import PS_PER_NS
from slipstream.writing import atomic_write

FLAT_ROLES = ("stream", "async", "windows")
"""roles of lanes on which overlapping events run side by side; on others they nest"""

_BEGIN, _END, _COUNTER = number(9, 1), number(9, 2), number(9, 4)
_FLOW_FROM, _FLOW_TO, _COUNTER_VALUE = fixed_tag(47), fixed_tag(48), fixed_tag(44)


def write_perfetto(profile: Profile, path: str | os.PathLike[str]) -> None:
    """Write a profile's device and host events as a trace for ui.perfetto.dev."""
    with atomic_write(path) as temporary, temporary.open("wb") as file:
        for piece in perfetto_bytes(profile):
            file.write(piece)


def perfetto_bytes(profile: Profile) -> Iterator[bytes]:
    """The trace, piece by piece."""
    # Timestamps can't be negative, but an event may start before the profile's origin.
    tables = (profile.events, profile.host_events)
    origin_ps = min(int(table["start_ps"].min(initial=0)) for table in tables)
    builder = _TraceBuilder(InternedTexts(), Packets(), TrackDescriptors(profile), origin_ps)
    launched = launch_arrows(profile)
    waited = async_arrows(profile)
    numbers = np.arange(1, 1 + len(launched) + len(waited), dtype=np.uint64)
    first, second = numbers[: len(launched)], numbers[len(launched) :]
    builder.steps(profile)
    onward = _Flows.of(
        len(profile.events),
        outgoing=[(waited.start, second)],
        incoming=[(launched.end, first), (waited.end, second)],
    )
    builder.slices(device_slices(profile), onward)
    calls = _Flows.of(len(profile.host_events), outgoing=[(launched.start, first)], incoming=[])
    builder.slices(host_slices(profile), calls)
    builder.counters(profile)
    yield builder.texts.packet()
    yield from builder.tracks.descriptors
    yield from builder.packets.assembled()


@dataclass(frozen=True)
class _Flows:
    """Ids of the arrows at each row: first outgoing, then incoming."""

    outgoing: Array
    incoming: Array
    """number of arrows of each row"""
    begin: Array
    """where the ids of a row start"""
    numbers: Array

    @classmethod
    def of(
        cls,
        rows: int,
        outgoing: Sequence[tuple[Array, Array]],
        incoming: Sequence[tuple[Array, Array]],
    ) -> _Flows:
        sides = (*((0, *one) for one in outgoing), *((1, *one) for one in incoming))
        row = np.concatenate([rows for _, rows, _ in sides])
        side = np.concatenate([np.full(len(rows), which) for which, rows, _ in sides])
        value = np.concatenate([numbers for _, _, numbers in sides])
        order = np.lexsort((side, row))
        counts = [np.bincount(row[side == which], minlength=rows) for which in (0, 1)]
        total = counts[0] + counts[1]
        return cls(counts[0], counts[1], np.cumsum(total) - total, value[order])

    def shape(self, row: int) -> bytes:
        """The slots that a packet of this row needs."""
        return _FLOW_FROM * int(self.outgoing[row]) + _FLOW_TO * int(self.incoming[row])

    def kinds(self) -> Array:
        """A number for each row, equal where rows have equally many arrows."""
        return self.outgoing * (int(self.incoming.max(initial=0)) + 1) + self.incoming

    def at(self, rows: Array) -> Array:
        """The ids of some rows, concatenated."""
        counts = (self.outgoing + self.incoming)[rows]
        places = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        found: Array = self.numbers[places + np.repeat(self.begin[rows], counts)]
        return found


@dataclass(frozen=True)
class _TraceBuilder:
    """Collects the packets of a trace."""

    texts: InternedTexts
    packets: Packets
    tracks: TrackDescriptors
    origin_ps: int

    def slices(self, slices: EventSlices, flows: _Flows) -> None:
        table = slices.table
        starts_ps = table["start_ps"] - self.origin_ps
        starts = starts_ps // PS_PER_NS
        ends = (starts_ps + table["duration_ps"]) // PS_PER_NS
        said, bodies = self._bodies(slices)
        kinds = said * (int(flows.kinds().max(initial=0)) + 1) + flows.kinds()
        for lane, rows in _by_lane(table["lane"]):
            nested = self.tracks.profile.lanes[lane].role not in FLAT_ROLES
            for level, track in enumerate(lay_out(rows, starts, ends, nested)):
                times = np.where(track.opens, starts[track.rows], ends[track.rows])
                on_track = number(11, self.tracks.lane(lane, level))
                templates = self._templates(track, kinds, said, bodies, flows, on_track)
                self.packets.add(times, templates, flows.at(track.rows[track.opens]))

    def _templates(
        self,
        track: Track,
        kinds: Array,
        said: Array,
        bodies: Sequence[bytes],
        flows: _Flows,
        on_track: bytes,
    ) -> Array:
        """The template of each begin and end on a track."""
        numbers = np.full(len(track.rows), self.packets.template(_END + on_track), np.int64)
        opened = track.rows[track.opens]
        _, firsts, which = np.unique(kinds[opened], return_index=True, return_inverse=True)
        begins = []
        for row in opened[firsts].tolist():
            body = _BEGIN + on_track + bodies[int(said[row])]
            begins.append(self.packets.template(body, flows.shape(row)))
        numbers[track.opens] = np.array(begins, np.int64)[which]
        return numbers

    def _bodies(self, slices: EventSlices) -> tuple[Array, list[bytes]]:
        """The kind of each row, and the encoded name and annotations of each kind."""
        category = number(3, self.texts.index("category", slices.category))
        bodies = []
        for name, notes in slices.labels:
            annotations = (self._annotation(note, text) for note, text in notes.items() if text)
            bodies.append(
                number(10, self.texts.index("name", name)) + category + b"".join(annotations)
            )
        return slices.kinds, bodies

    def _annotation(self, name: str, text: str) -> bytes:
        indices = self.texts.index("annotation", name), self.texts.index("value", text)
        return message(4, number(1, indices[0]), number(17, indices[1]))

    def steps(self, profile: Profile) -> None:
        """A slice for each step, on a track of its own."""
        steps = profile.steps
        if steps.basis == "recording":
            return
        category = number(3, self.texts.index("category", "step"))
        for row in range(len(steps)):
            track = number(11, self.tracks.steps(int(steps.device[row])))
            name = number(10, self.texts.index("name", f"step {int(steps.number[row])}"))
            begin, end = int(steps.start_ps[row]), int(steps.end_ps[row])
            if row + 1 < len(steps) and steps.device[row + 1] == steps.device[row]:
                # A step may start before the last has ended, but slices of one track can't overlap.
                end = max(begin, min(end, int(steps.start_ps[row + 1])))
            times = (np.array([begin, end]) - self.origin_ps) // PS_PER_NS
            templates = (_BEGIN + track + name + category, _END + track)
            self.packets.add(times, np.array([self.packets.template(one) for one in templates]))

    def counters(self, profile: Profile) -> None:
        for one in counters(profile):
            track = self.tracks.counter(one.device, one.name, one.unit)
            template = self.packets.template(_COUNTER + number(11, track), _COUNTER_VALUE)
            times = (one.times_ps - self.origin_ps) // PS_PER_NS
            values = np.ascontiguousarray(one.values, np.float64).view(np.uint64)
            self.packets.add(times, np.full(len(times), template), values)


def _by_lane(lanes: Array) -> Iterator[tuple[int, Array]]:
    order = np.argsort(lanes, kind="stable")
    used, begins = np.unique(lanes[order], return_index=True)
    # An empty array splits into one empty part, which belongs to no lane.
    yield from zip(used.tolist(), np.split(order, begins[1:]), strict=False)
